"""Times libgemm's casts to 8 bits beside torch.compile's, on matrices drawn at random: python bench/measure/casts.py.

    python bench/measure/casts.py [--seed N] [--count 24] [--out FOLDER]

Of each granularity, with the transposed matrix and without, in CUDA graphs over inputs rotated past L2, in alternation.
The share is that of the time the bytes take which must move: A once, twice where a scale is of more than a tile sees,
and once what is written. Stops where the two do not agree. Writes bench/results/<device>.casts.json.
"""

import argparse
import json
import math
import random
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "runtime")]

import libgemm  # noqa: E402
import torch  # noqa: E402

from bench.measure import about  # noqa: E402
from bench.measure.timing import alternate, rotations  # noqa: E402
from bench.suites.roofline import BYTES  # noqa: E402

GRANULARITIES = ("tensor", "row", "1x128", "128x128")
WIDTHS = (1024, 1536, 2048, 2880, 4096, 5120, 7168, 8192, 14336, 18432)
DEVICE = "cuda"
FLOOR_US = 10  # below it what a launch costs counts
NEAR = 1e-3  # of a scale
FAR = 1.01  # of torch's distance from what was cast: torch.compile divides in its own way, and middles round with it
LARGEST = 448.0


def draw(seed: int, count: int) -> list[dict]:
    chance = random.Random(seed)
    rows = (round(math.exp(chance.uniform(math.log(256), math.log(32768))) / 16) * 16 for _ in range(count))
    return [{"m": m, "n": chance.choice(WIDTHS)} for m in rows]


def reads(granularity: str, transposed: bool) -> int:
    """How often A must come from memory: twice where not even a row of blocks tells a scale."""
    return 2 if granularity == "tensor" or (granularity == "row" and transposed) else 1


def floor_us(row: dict, granularity: str, transposed: bool) -> float:
    values = row["m"] * row["n"]
    return values * (2 * reads(granularity, transposed) + 1 + transposed) / BYTES * 1e6


def torch_cast(x: torch.Tensor, granularity: str) -> tuple[torch.Tensor, torch.Tensor]:
    """What torch.compile makes one or two kernels of; sizes that are no multiples of 128 are padded in its scales."""
    m, n = x.shape
    wide = x.float()
    if granularity == "tensor":
        scale = wide.abs().amax() / LARGEST
        each = scale
    elif granularity == "row":
        scale = wide.abs().amax(1, keepdim=True) / LARGEST
        each = scale
    else:
        down = 128 if granularity == "128x128" else 1
        padded = torch.nn.functional.pad(wide.abs(), (0, -n % 128, 0, -m % down))
        scale = padded.view(-(-m // down), down, -(-n // 128), 128).amax((1, 3)) / LARGEST
        each = scale.repeat_interleave(down, 0)[:m].repeat_interleave(128, 1)[:, :n]
    return (wide / each).clamp(-LARGEST, LARGEST).to(torch.float8_e4m3fn), scale


def torch_both(x: torch.Tensor, granularity: str) -> tuple[torch.Tensor, ...]:
    return (*torch_cast(x, granularity), *torch_cast(x.t().contiguous(), granularity))


def calls(granularity: str, transposed: bool, compiled: dict) -> dict:
    ours = libgemm.cast_transpose if transposed else libgemm.cast
    return {
        "ours": lambda x: ours(x, granularity),
        "torch.compile": lambda x: compiled[transposed](x, granularity),
    }


def distance(values: torch.Tensor, scale: torch.Tensor, granularity: str, x: torch.Tensor) -> float:
    """How far x is from what was made of it, as a share of its size."""
    m, n = x.shape
    down, along = {"tensor": (m, n), "row": (1, n), "1x128": (1, 128), "128x128": (128, 128)}[granularity]
    scale = scale.reshape(-(-m // down), -(-n // along))
    each = scale.repeat_interleave(down, 0)[:m].repeat_interleave(along, 1)[:, :n]
    return float((values.float() * each - x.float()).norm() / x.float().norm())


def check(both: dict, x: torch.Tensor, granularity: str, what: str) -> None:
    """Scales agree, every value is torch's or next to it, and what was made is as near to x as torch's."""
    made = {name: way(x) for name, way in both.items()}
    for i, a in enumerate((x, x.t())[: len(made["ours"]) // 2]):
        (ours, our_scale), (torchs, scale) = (found[2 * i : 2 * i + 2] for found in made.values())
        off = float(((our_scale - scale) / scale).abs().max())
        apart, step = (ours.float() - torchs.float()).abs(), (torchs.float().abs() / 8).clamp_min(2.0**-9)
        far = {"ours": distance(ours, our_scale, granularity, a), "torch": distance(torchs, scale, granularity, a)}
        if not (off <= NEAR and bool((apart <= step).all()) and far["ours"] <= FAR * far["torch"]):
            raise SystemExit(f"{what}: libgemm's cast and torch's are apart: scales by {off:.1e}, from x {far}")


def measure(row: dict, compiled: dict) -> list[dict]:
    inputs = [(torch.randn(row["m"], row["n"], device=DEVICE, dtype=torch.bfloat16),)
              for _ in range(rotations(3 * row["m"] * row["n"]))]  # fmt: skip
    found = []
    for granularity in GRANULARITIES:
        for transposed in (False, True):
            both = calls(granularity, transposed, compiled)
            check(both, inputs[0][0], granularity, f"{row} {granularity} transposed {transposed}")
            floor = floor_us(row, granularity, transposed)
            us = alternate(both, inputs, floor)
            found.append({
                **row, "granularity": granularity, "transposed": transposed, "floor_us": floor,
                "ours_us": us["ours"], "peers": {"torch.compile": us["torch.compile"]},
            })  # fmt: skip
    return found


def geometric(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def summary(rows: list[dict]) -> list[dict]:
    """Of each kind: share of the bytes' time and speed beside torch, means and the least."""
    found = []
    for granularity in GRANULARITIES:
        for transposed in (False, True):
            own = [r for r in rows if (r["granularity"], r["transposed"]) == (granularity, transposed)]
            shares = [r["floor_us"] / r["ours_us"] for r in own if r["floor_us"] >= FLOOR_US]
            ratios = [r["peers"]["torch.compile"] / r["ours_us"] for r in own]
            found.append({
                "granularity": granularity, "transposed": transposed, "rows": len(own), "share": geometric(shares),
                "least_share": min(shares, default=math.nan), "torch": geometric(ratios), "least_torch": min(ratios),
            })  # fmt: skip
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=time.time_ns() // 1000 % 10**8)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch._dynamo.config.cache_size_limit = 64  # a graph for each granularity
    compiled = {False: torch.compile(torch_cast, dynamic=True), True: torch.compile(torch_both, dynamic=True)}
    rows = [found for row in draw(options.seed, options.count) for found in measure(row, compiled)]
    told = summary(rows)
    print(f"seed {options.seed}: share of the bytes' time (where that is {FLOOR_US} us and more), beside torch.compile")
    for x in told:
        name = x["granularity"] + (" and transposed" if x["transposed"] else "")
        shares = f"share {x['share']:.2f}, least {x['least_share']:.2f}"
        print(f"{name:22} {shares}; {x['torch']:.2f}, least {x['least_torch']:.2f}")
    head = {**about.head(), "seed": options.seed}
    about.keep(
        about.path_of(head, options.out, ".casts.json"),
        json.dumps({**head, "summary": told, "rows": rows}, indent=1) + "\n",
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
