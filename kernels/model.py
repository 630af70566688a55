"""How long a variant takes on a problem, as six numbers: measured ones from tuned/<target>.json, else rough ones.

A multiprocessor that works through T tiles of S steps in K needs, and memory needs for all bytes read and written once,

    compute = fixed + S * step + tile + (T - 1) * (S * next_step + next_tile)
              (where K is split P ways, S is a piece's steps, and arrive + P * piece comes on top)
    memory  = fixed + bytes * byte
    time    = (compute^4 + memory^4)^(1/4)

which the C side (choose.c) evaluates; a variant is as good as its time. Stdlib only.
"""

import functools
import json
from dataclasses import dataclass
from pathlib import Path

TUNED = Path(__file__).parent / "tuned"


@dataclass(frozen=True)
class Model:
    fixed_ns: float  # launch, first loads, last store
    step_ns: float  # one step in K of the first tile
    tile_ns: float  # its epilogue
    next_step_ns: float  # of each further tile, whose loads and epilogue overlap
    next_tile_ns: float
    byte_ps: float  # time of one byte of A, B, C and D
    arrive_ns: float = 0.0  # where K is split: to tell the arrival, and to wait for the last
    piece_ns: float = 0.0  # and to add one piece


@dataclass(frozen=True)
class Speed:
    """What a GPU does, roughly, where nobody has measured."""

    multiply_ns: float  # of one multiplication and addition, for one multiprocessor at a rate of 1
    byte_ps: float  # of one byte of memory


def rough(block_m: int, block_n: int, block_k: int, rate: int, speed: Speed) -> Model:
    """For rows nobody has measured: work over a rate, 100 being the reference set's large tile."""
    step = block_m * block_n * block_k * speed.multiply_ns / rate
    return Model(3000.0, step, 500.0, step, 500.0, speed.byte_ps)


def reuse(block_m: int, block_n: int) -> float:
    """A tile's speed by how often it uses what it loads: from 0 for a thin one to 1 for an endless one, and half of
    that for one that multiplies each loaded element 96 times, counting an element of A and one of B as one."""
    times = block_m * block_n / (block_m + block_n)
    return times / (times + 96)


@functools.cache
def measured(target: int) -> dict[str, Model]:
    """Models by tile and family name, such as "128x256x64_w8_s4_p2_coop"; empty for a target not tuned."""
    path = TUNED / f"sm{target}.json"
    if not path.is_file():
        return {}
    return {name: Model(**numbers) for name, numbers in json.loads(path.read_text())["models"].items()}
