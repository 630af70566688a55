"""One product of packed groups of 8-bit operands with scales: libgemm beside torch's scaled_grouped_mm and libgemm's
own product in bf16. Makes rows of the report; proves no more than that libgemm multiplied what torch did.

torch has no scales of blocks for groups on this GPU: there its rows' scales are the peer, which it need not multiply by
at each 128 of K.
"""

import libgemm
import torch

from bench.measure import peer_deep_gemm
from bench.measure.grouped import running_sums
from bench.measure.scaled import NEAR, peers_of
from bench.measure.timing import alternate, rotations
from bench.suites.roofline import floor_us, traffic
from bench.suites.scaled import BLOCKS, DEEP_GEMM, KINDS, SUMS

PEER = "torch.scaled_grouped_mm"
PADDED = 128  # rows at whose multiples groups begin that are padded
MOST_BYTES = 16e9  # of rotated operands, which stand there in bf16 too


def operands(layer: dict) -> list[tuple]:
    """Rotated A, B, ends, scales of rows and columns, of blocks, D; and A and B in bf16."""
    m, n, k, groups = (layer[name] for name in ("m", "n", "k", "groups"))
    found, weights = [], 3 * (groups * n * k + m * k)
    for _ in range(min(rotations(traffic(layer)), max(2, int(MOST_BYTES // weights)))):
        a = torch.randn((m, k), device="cuda", dtype=torch.bfloat16)
        b = torch.randn((groups, n, k), device="cuda", dtype=torch.bfloat16)
        steps = -(-k // 128)
        shapes = (m,), (groups, n), (steps, m), (groups, steps, -(-n // 128))
        of_a, of_b, by_blocks, of_blocks = (torch.rand(shape, device="cuda") + 0.5 for shape in shapes)
        out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        narrow = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).mT
        found.append((*narrow, running_sums(layer["sizes"]), of_a, of_b, by_blocks.t(), of_blocks, out, a, b.mT))
    return found


def calls(scaling: str, precision: str) -> dict:
    """The same product by libgemm, by torch, and by libgemm in bf16."""
    rows = torch.nn.functional.ScalingType.RowWise

    def ours(a, b, ends, of_a, of_b, by_blocks, of_blocks, out, *_) -> None:
        scales = (by_blocks, of_blocks) if scaling == BLOCKS else (of_a, of_b)
        words = {"scaling": scaling, "a_scale": scales[0], "b_scale": scales[1], "precision": precision}
        libgemm.grouped_mm(a, b, ends, out=out, **words)

    def peer(a, b, ends, of_a, of_b, *_):
        fast = SUMS[precision]
        return torch.nn.functional.scaled_grouped_mm(a, b, of_a, rows, of_b, rows, offs=ends, use_fast_accum=fast)

    def bf16(_, __, ends, ___, ____, _____, ______, out, a, b) -> None:
        libgemm.grouped_mm(a, b, ends, out=out)

    return {"ours": ours, PEER: peer, "bf16": bf16}


def check(calls: dict, name: str, one: tuple, what: str, at: torch.Tensor | None = None) -> None:
    """Stop where libgemm's product is not that of `name`, whose rows stand at `at`, or as ours do."""
    out, rows = one[7], int(one[2][-1])
    out.fill_(float("nan"))
    calls["ours"](*one)
    want = calls[name](*one)
    want = (want[:rows] if at is None else want[at]).float()
    apart = float((out[:rows].float() - want).norm() / want.norm())
    if not apart <= NEAR:
        raise SystemExit(f"{what}: libgemm's product and {name}'s are {apart:.1e} of its size apart")


def with_deep_gemm(calls: dict, layer: dict, inputs: list[tuple]) -> None:
    """Adds DeepGEMM's product with scales of blocks, where it is and takes the shape."""
    deep = peer_deep_gemm.grouped(layer, inputs)
    if deep is None:
        return
    calls[DEEP_GEMM], at = deep
    try:
        check(calls, DEEP_GEMM, inputs[0], layer["id"], at)
    except RuntimeError as error:
        if isinstance(error, (torch.OutOfMemoryError, torch.AcceleratorError)):
            raise
        del calls[DEEP_GEMM]


def on_padded(layer: dict, inputs: list[tuple]):
    """libgemm's product with scales of blocks of the same groups where each begins at a multiple of PADDED rows, and
    the rows between them are multiplied too: what it costs that they begin anywhere."""
    rows, _ = peer_deep_gemm.padded(layer["sizes"], PADDED)
    rows = rows.clamp_min(0).to(inputs[0][0].device).long()
    ends = running_sums([-(-size // PADDED) * PADDED for size in layer["sizes"]])
    made = {}
    for a, b, _, __, ___, by_blocks, of_blocks, *____ in inputs:
        own = a.view(torch.uint8)[rows].view(a.dtype)
        out = torch.empty(len(rows), layer["n"], device=a.device, dtype=torch.bfloat16)
        made[a.data_ptr()] = own, b, by_blocks.t()[:, rows].t(), of_blocks, out

    def call(a, *_) -> None:
        own, b, by_blocks, of_blocks, out = made[a.data_ptr()]
        libgemm.grouped_mm(own, b, ends, out=out, scaling=BLOCKS, a_scale=by_blocks, b_scale=of_blocks)

    return call


def rows_of(layer: dict) -> list[dict]:
    inputs, found = operands(layer), []
    for scaling, precision in KINDS:
        if scaling == "tensor":
            continue
        given = calls(scaling, precision)
        if scaling == "row":
            check(given, PEER, inputs[0], f"{layer['id']} {scaling} {precision}")
        else:
            with_deep_gemm(given, layer, inputs)
            if layer["kind"] == "uneven groups":
                given["padded"] = on_padded(layer, inputs)
        us = alternate(given, inputs, floor_us(layer))
        padded = {"padded_us": us.pop("padded")} if "padded" in us else {}
        choice = libgemm.explain_grouped_mm(
            layer["m"],
            layer["n"],
            layer["k"],
            layer["groups"],
            "e4m3",
            layout="nt",
            precision=precision,
            scaling=scaling,
        )
        found.append({
            **{key: layer[key] for key in ("id", "kind", "m", "n", "k", "groups", "filled", "dtype", "note")},
            "recipe": scaling, "accumulation": precision, "ours_us": us["ours"], "bf16_us": us["bf16"],
            "peers": peers_of(us), "floor_us": floor_us(layer), "variant": choice.variant.name, **padded,
        })  # fmt: skip
    return found
