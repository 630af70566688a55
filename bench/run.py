"""libgemm beside torch.mm and addmm (cuBLAS) on one GPU: a table, and bench/results/<device>.json. Proves no numerics.

    python bench/run.py [--dtype bf16,f16] [--regret 40] [--out bench/results]

Needs dist/ built and a Python with torch and cffi; Triton is not used. The floor of a shape is
max(flops / 800 TFLOP/s, bytes / 4.3 TB/s): what an H200 gave cuBLAS at best and a device copy.
"""

import argparse
import datetime
import json
import math
import random
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]
sys.modules["triton"] = None  # kernels must come from the library

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.timing import alternate, rotations  # noqa: E402

FLOPS, BYTES = 800e12, 4.3e12
DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


def operands(shape: dict, dtype) -> tuple[list, float]:
    """Rotated (a, b, c, out) of random normal numbers, and the floor in microseconds."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    out_type = torch.float32 if shape["out"] == "f32" else dtype
    width = 4 if out_type == torch.float32 else 2
    size = 2 * (m * k + n * k) + width * m * n * (2 if shape["beta"] else 1)

    def matrix(rows: int, cols: int, turned: bool):
        if turned:
            return torch.randn(cols, rows, device="cuda").to(dtype).t()
        return torch.randn(rows, cols, device="cuda").to(dtype)

    layout = shape["layout"]
    inputs = [
        (matrix(m, k, layout[0] == "T"), matrix(k, n, layout[1] == "T"),
         torch.randn(m, n, device="cuda").to(out_type), torch.empty(m, n, device="cuda", dtype=out_type))
        for _ in range(rotations(size))
    ]  # fmt: skip
    return inputs, max(2 * m * n * k / FLOPS, size / BYTES) * 1e6


def calls(shape: dict) -> dict:
    """The same product by libgemm and by its peer; alpha is 2 where beta is, as in the alpha/beta benchmark."""
    beta = float(shape["beta"])
    alpha = 2.0 if beta == 2 else 1.0

    def ours(a, b, c, out):
        libgemm.gemm(a, b, c if beta else None, alpha=alpha, beta=beta, out=out)

    def peer(a, b, c, out):
        if beta and out.dtype != a.dtype:
            torch.addmm(c, a, b, out_dtype=out.dtype, beta=beta, alpha=alpha)
        elif beta:
            torch.addmm(c, a, b, beta=beta, alpha=alpha, out=out)
        elif out.dtype != a.dtype:
            torch.mm(a, b, out_dtype=out.dtype)
        else:
            torch.mm(a, b, out=out)

    return {"ours": ours, "peer": peer}


def variant_of(shape: dict, dtype: str, **more) -> str:
    chosen, _ = libgemm.explain(
        shape["m"], shape["n"], shape["k"], dtype, layout=shape["layout"].lower(),
        out_dtype="f32" if shape["out"] == "f32" else None, **more,
    )  # fmt: skip
    return chosen.name


def compare(shape: dict, dtype: str) -> dict:
    inputs, floor = operands(shape, DTYPES[dtype])
    us = alternate(calls(shape), inputs, floor)
    peer = "torch.addmm" if shape["beta"] else "torch.mm"
    keys = ("id", "m", "n", "k", "layout", "beta", "out")
    return {
        **{key: shape[key] for key in keys}, "op": "gemm", "dtype": dtype, "ours_us": us["ours"], "peer": peer,
        "peer_us": us["peer"], "floor_us": floor, "variant": variant_of(shape, dtype),
    }  # fmt: skip


def random_shape(seed: int) -> dict:
    """Log-uniform sizes, M to 16384, N and K from 64, nine in ten a multiple of 8; not shapes of the suite."""
    draw = random.Random(seed)
    m, n, k = (round(math.exp(draw.uniform(math.log(low), math.log(16384)))) for low in (1, 64, 64))
    layout = draw.choice(("NN", "NT", "TN", "TT"))
    if draw.random() < 0.9:
        n, k = n // 8 * 8, k // 8 * 8
        m = m if layout[0] == "N" else max(8, m // 8 * 8)
    return {"id": f"random {seed}", "m": m, "n": n, "k": k, "layout": layout, "beta": 0, "out": "same"}


def regret_of(shape: dict, dtype: str = "bf16") -> dict:
    """Time of the chosen variant over that of the best one in the library, less 1."""
    inputs, floor = operands(shape, DTYPES[dtype])
    layout = [letter == "T" for letter in shape["layout"]]
    runs, a, b, out = {}, inputs[0][0], inputs[0][1], inputs[0][3]
    for v in libgemm.variants():
        if (v.op, v.target, v.a_type, v.d_type) != ("gemm", target(), dtype, dtype) or [v.trans_a, v.trans_b] != layout:
            continue
        try:
            libgemm.gemm(a, b, out=out, variant=v.name)
        except libgemm.Error:
            continue  # its guard refuses this shape
        runs[v.name] = lambda a, b, c, out, name=v.name: libgemm.gemm(a, b, out=out, variant=name)
    chosen = variant_of(shape, dtype)
    us = alternate(runs, inputs, floor)
    best = min(us, key=us.get)
    return {**shape, "chosen": chosen, "best": best, "regret": us[chosen] / us[best] - 1}


def target() -> int:
    major, minor = torch.cuda.get_device_capability()
    return major * 10 + minor


def geomean(values) -> float:
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def summarise(rows: list[dict]) -> dict:
    found = {}
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        own = [row for row in rows if row["dtype"] == dtype]
        ratios = {row["id"]: row["peer_us"] / row["ours_us"] for row in own}
        worst = min(ratios, key=ratios.get)
        share = geomean(row["floor_us"] / row["ours_us"] for row in own if row["floor_us"] >= 5)
        found[dtype] = {
            "geomean": geomean(ratios.values()), "worst": worst, "worst_ratio": ratios[worst], "floor_share": share,
        }  # fmt: skip
    return found


def report(rows: list[dict], regrets: list[dict]) -> dict:
    manifest = json.loads((ROOT / "dist" / "manifest.json").read_text())
    build = libgemm.info()["build_id"]
    if manifest["build_id"] != build:
        raise SystemExit(
            f"dist/manifest.json is of build {manifest['build_id']}, the library of {build}: run make build"
        )
    ordered = sorted(r["regret"] for r in regrets)
    return {
        "build_id": build,
        "commit": manifest["commit"],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "summary": summarise(rows),
        "regret": {
            "shapes": len(ordered), "median": ordered[len(ordered) // 2], "p95": ordered[int(len(ordered) * 0.95)],
        } if ordered else {},
        "rows": rows,
        "regret_rows": regrets,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtype", default="bf16,f16")
    parser.add_argument("--regret", type=int, default=40, metavar="SHAPES")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    torch.manual_seed(0)
    libgemm.preload(torch.cuda.current_device())
    shapes = json.loads((ROOT / "bench" / "dense.json").read_text())["shapes"]
    rows = []
    for dtype in options.dtype.split(","):
        for shape in shapes:
            rows.append(row := compare(shape, dtype))
            print(f"{row['id']:4} {dtype:5}{row['m']:6}{row['n']:7}{row['k']:6} {row['layout']} "
                  f"{row['ours_us']:9.1f}{row['peer_us']:9.1f} us  x{row['peer_us'] / row['ours_us']:.2f}  "
                  f"{row['floor_us'] / row['ours_us']:.2f} of the floor", flush=True)  # fmt: skip
    found = report(rows, [regret_of(random_shape(seed)) for seed in range(options.regret)])
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"{found['device'].replace(' ', '_')}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    for dtype, s in found["summary"].items():
        print(f"{dtype}: geometric mean {s['geomean']:.3f} of cuBLAS, worst {s['worst']} {s['worst_ratio']:.2f}, "
              f"{s['floor_share']:.3f} of the floor")  # fmt: skip
    print(f"regret {found['regret']}; wrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
