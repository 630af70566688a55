"""Packed products of random sizes, and those of the suite: what tuning measures, and what regret is asked of."""

import json
import math
import random
from pathlib import Path
from typing import NamedTuple

from bench.suites.roofline import floor_us
from bench.suites.sizes import draw_sizes, sizes_of

DISTRIBUTIONS = {  # name -> what bench/suites/sizes.py draws for so many rows
    "uniform": lambda rows: {"kind": "equal"},
    "multinomial": lambda rows: {"kind": "top_k", "top_k": 1, "tokens": rows},
    "skewed": lambda rows: {"kind": "squares", "least": 0.02},
    "half": lambda rows: {"kind": "half"},
}
SUITE = {case["id"]: case for case in json.loads(Path(__file__).with_name("grouped.json").read_text())["cases"]}
LONGEST_US = 3000  # floors above are not drawn


class Packed(NamedTuple):
    """One product to measure."""

    ragged: str
    groups: int
    m: int
    n: int
    k: int
    layout: str
    distribution: str  # of DISTRIBUTIONS, or the id of a case of the suite
    seed: int

    @property
    def case(self) -> dict:
        return {**self._asdict(), "op": "grouped_mm"}

    def sizes(self) -> list[int]:
        if self.distribution in SUITE:
            return sizes_of(SUITE[self.distribution])
        rows = self.k if self.ragged == "K" else self.m
        return draw_sizes(self.groups, rows, DISTRIBUTIONS[self.distribution](rows), f"tune {self.seed}")


def draw_problem(seed: int) -> Packed:
    """Log-uniform sizes, one in five with groups along K, one in five of groups of equal size; N and K (or M) are
    multiples of 64, one in ten of 8."""
    draw = random.Random(f"tune grouped {seed}")

    def log_uniform(low: int, high: int) -> int:
        return round(math.exp(draw.uniform(math.log(low), math.log(high))))

    while True:
        groups, rows = log_uniform(1, 256), log_uniform(1, 65536)
        step = 64 if draw.random() < 0.9 else 8
        ragged = draw.choice(("K", "K", "none", "none", "M", "M", "M", "M", "M", "M"))
        width, depth = (log_uniform(64, most) // step * step for most in (8192, 8192 if ragged == "K" else 32768))
        layout = draw.choice({"K": ("tn",), "none": ("nt", "nn", "tn", "tt"), "M": ("nt", "nn")}[ragged])
        distribution = "uniform" if ragged == "none" else draw.choice(list(DISTRIBUTIONS))
        if ragged == "none":
            each = max(1, rows // groups) if layout[0] == "n" else max(1, rows // groups // 8) * 8
            rows = groups * each
        m, k = (depth, rows) if ragged == "K" else (rows, depth)
        found = Packed(ragged, groups, m, width, k, layout, distribution, seed)
        if floor_us({**found.case, "dtype": "bf16"}) < LONGEST_US:
            return found


def suite() -> list[Packed]:
    """The benchmark's cases of packed groups into 16-bit types: what people run."""
    return [
        Packed(case["ragged"], case["groups"], case["m"], case["n"], case["k"], case["layout"].lower(), case["id"], 0)
        for case in SUITE.values() if case["op"] == "grouped_mm" and case.get("out") != "f32"
    ]  # fmt: skip
