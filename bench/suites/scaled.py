"""8-bit products to measure: a fixed list, forward products of drawn layers, those of drawn layers of experts, and
gradients of their weights. What is listed is among what the choice is fitted to; of what is drawn tuning sees nothing.
Standard library only.
"""

import random

from bench.suites.dense_drawn import forward
from bench.suites.draws import grouped_key, known_dense, known_grouped
from bench.suites.layers_drawn import layers
from bench.suites.packed import LONGEST_US
from bench.suites.roofline import floor_us

LIST = (  # M, N, K: what people time 8-bit products on, from prompts to one token
    (8192, 8192, 8192), (4096, 4096, 4096), (4096, 7168, 2048), (4096, 7168, 16384), (4096, 24576, 1536),
    (4096, 32768, 512), (2048, 5120, 5120), (1024, 8192, 3072), (512, 4096, 4096), (256, 7168, 2048),
    (128, 7168, 16384), (64, 24576, 1536), (16, 7168, 16384), (16, 4096, 14336), (1, 8192, 8192),
)  # fmt: skip
BLOCKS = "1x128_128x128"
DEEP_GEMM = "DeepGEMM"  # the peer of these scales
RECIPES = {  # libgemm's scaling -> torch's names of it
    "tensor": ("TensorWise", "TensorWise"),
    "row": ("RowWise", "RowWise"),
    BLOCKS: ("BlockWise1x128", "BlockWise128x128"),
}
SUMS = {"exact": False, "fast": True}  # libgemm's precision -> torch's use_fast_accum
KINDS = [(recipe, sums) for recipe in RECIPES for sums in SUMS if (recipe, sums) != (BLOCKS, "fast")]


def product(name: str, kind: str, m: int, n: int, k: int, note: str = "") -> dict:
    return {
        "id": name,
        "kind": kind,
        "m": m,
        "n": n,
        "k": k,
        "layout": "NT",
        "out": "same",
        "dtype": "e4m3",
        "note": note,
    }


def listed() -> list[dict]:
    return [product(f"{m}x{n}x{k}", "list", m, n, k) for m, n, k in LIST]


def drawn(seed: int, count: int) -> list[dict]:
    """So many, none that tuning measured; a seed always gives the same ones. torch wants N and K to be multiples of
    16."""
    known = {shape[:3] for shape in known_dense()}
    draw, taken, found = random.Random(f"drawn scaled {seed}"), known | set(LIST), []
    while len(found) < count:
        m, n, k, _, note = forward(draw)
        one = product(f"drawn {len(found)}", "drawn", m, n // 16 * 16, k // 16 * 16, note)
        shape = one["m"], one["n"], one["k"]
        if shape not in taken and floor_us(one) < LONGEST_US:
            taken.add(shape)
            found.append(one)
    return found


# Groups, rows of each, N, K: products of experts in prompts, as people publish them.
GROUPS = ((8, 4096, 4096, 7168), (32, 1024, 4096, 2048), (128, 512, 1536, 2048))


def listed_groups() -> list[dict]:
    """Each with equal groups, and with as many rows in groups that begin and end anywhere."""
    found = []
    for groups, rows, n, k in GROUPS:
        apart = [(23 * group) % 61 + 1 for group in range(groups // 2)]
        uneven = [rows + sign * by for by in apart for sign in (1, -1)]
        for kind, sizes in (("equal groups", [rows] * groups), ("uneven groups", uneven)):
            found.append({
                "id": f"{groups} x {rows}x{n}x{k} {kind}", "kind": kind, "op": "grouped_mm", "ragged": "M",
                "layout": "NT", "dtype": "e4m3", "out": "same", "note": "", "m": groups * rows, "n": n, "k": k,
                "groups": groups, "filled": groups, "sizes": sizes,
            })  # fmt: skip
    return found


def drawn_groups(seed: int, count: int) -> list[dict]:
    """So many products of layers of experts, whose ends cut the rows, forward and back; none that tuning measured.
    torch wants N and K to be multiples of 16."""
    taken, found = set(known_grouped()), []
    for layer in layers(seed, 4 * count):
        if layer["ragged"] != "M" or len(found) == count:
            continue
        one = {**layer, "id": f"drawn group {len(found)}", "kind": "groups", "layout": "NT", "dtype": "e4m3",
               "n": layer["n"] // 16 * 16, "k": layer["k"] // 16 * 16, "out": "same",
               "filled": sum(size > 0 for size in layer["sizes"])}  # fmt: skip
        if grouped_key(one) not in taken:
            taken.add(grouped_key(one))
            found.append(one)
    return found


GRADIENTS = ((7168, 2048, 16, 2048), (4096, 7168, 8, 4096), (2048, 7168, 4, 8192))  # M, N, groups, rows of each


def gradients(seed: int, count: int) -> list[dict]:
    """Large groups of one size, then so many of drawn layers of experts, whose ends cut K. torch wants M, N and every
    other one's groups to be multiples of 16."""
    common = {"op": "grouped_mm", "ragged": "K", "layout": "NT", "kind": "gradients", "dtype": "e4m3", "out": "same"}
    found = [
        {**common, "id": f"{groups} x {m}x{n}x{rows}", "m": m, "n": n, "k": groups * rows, "groups": groups,
         "filled": groups, "sizes": [rows] * groups, "note": "equal groups"}
        for m, n, groups, rows in GRADIENTS
    ]  # fmt: skip
    for layer in layers(seed, 6 * count):
        if layer["ragged"] != "K" or len(found) == count + len(GRADIENTS):
            continue
        step = 16 if len(found) % 2 else 1
        sizes = [size // step * step for size in layer["sizes"]]
        if any(sizes):
            found.append({
                **layer, **common, "id": f"drawn gradient {len(found)}", "m": layer["m"] // 16 * 16, "k": sum(sizes),
                "n": layer["n"] // 16 * 16, "sizes": sizes, "filled": sum(size > 0 for size in sizes),
            })  # fmt: skip
    return found
