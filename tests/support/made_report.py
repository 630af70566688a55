"""A small report, and shapes drawn beside it, whose means are easily said. Holds no test."""

from bench.suites.roofline import floor_us

A, B = "a" * 64, "b" * 64


def row(op: str = "gemm", dtype: str = "bf16", **more) -> dict:
    made = {
        "id": "X1", "m": 4096, "n": 4096, "k": 4096, "layout": "NT", "beta": 0, "out": "same", "op": op, "dtype": dtype,
        "ours_us": 200.0, "peer": "torch.mm", "peer_us": 220.0, **more,
    }  # fmt: skip
    return {**made, "floor_us": floor_us(made)}


HOST = {
    "rows": {
        "64 x 64 x 64 NN": {
            "python_us": 3.0, "torch_us": 6.0, "python_ratio": 0.5, "c_us": 2.2, "bare_us": 2.0, "c_ratio": 1.1,
        },
        "512 x 512 x 512 NN": {"python_us": 3.5, "torch_us": 7.0, "python_ratio": 0.5},
    },
    "pointer_query_us": 0.02,
    "note": "C was not timed from 512 x 512 x 512 NN on: why",
}  # fmt: skip


def made_report() -> dict:
    rows = [
        row(), row(id="X2", n=4095, peer_us=800.0), row(dtype="f32", ours_us=500.0),
        row("grouped_mm", groups=4, peer="torch._grouped_mm", peer_us=100.0),
    ]  # fmt: skip
    regret = {"shapes": 10, "median": 0.0, "p95": 0.125}
    return {"build_id": A, "device": "Some GPU", "torch": "2", "date": "2026-01-02T03:04:05", "rows": rows,
            "regret": regret, "regret_grouped": {"shapes": 20, "median": 0.01, "p95": 0.07}, "host": HOST}  # fmt: skip


def drawn_row(kind: str = "fwd", **more) -> dict:
    """200 us for 4096 cubed; torch takes 210."""
    made = {"id": kind, "kind": kind, "op": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096, "layout": "NT",
            "ours_us": 200.0, "torch_us": 210.0, "variant": "some", **more}  # fmt: skip
    return {**made, "floor_us": floor_us(made)}


def drawn_report(*rows: dict, **more) -> dict:
    return {
        "build_id": B, "device": "Some GPU", "date": "2026-01-03T04:05:06", "seed": 7, "cublaslt": {"version": 130000},
        "drawn_from": {"gemm": "so and so", "grouped_mm": "this and that"}, "rows": list(rows), **more,
    }  # fmt: skip


DRAWN = drawn_report(
    drawn_row(cublaslt_us=180.0, best_variant_us=190.0),
    drawn_row(cublaslt_us=180.0, torch_us=190.0),
    drawn_row("dgrad", layout="NN", torch_us=188.0, cublaslt_us=170.0),
    drawn_row("fwd", op="grouped_mm", groups=8, ragged="M"),
)
