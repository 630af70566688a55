"""DeepGEMM's products of 8-bit operands with scales of blocks, plain and of groups. Proves no numerics.

It is measured where it can be imported: the wheels sgl-deep-gemm and apache-tvm-ffi, unpacked on PYTHONPATH. It
compiles on the machine that runs it, by the nvcc under CUDA_HOME, some seconds for each tile: compile_all() lets many
processes do that beforehand. It takes scales of A a column at a time, each of whole 16 bytes, and groups whose rows
begin at multiples of 128: rows between stand in its A and D and are multiplied too.
"""

import functools
import json
import subprocess
import sys
from itertools import accumulate, pairwise
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 128
WORKERS = 16


@functools.cache
def library():
    """The peer, or None; says so where it is there and does not load, as where it was built for another torch."""
    try:
        import deep_gemm
    except ModuleNotFoundError:
        return None
    except (ImportError, OSError) as error:
        print(f"DeepGEMM does not load and is not measured: {error}", file=sys.stderr)
        return None
    return deep_gemm


def scales(of_a: torch.Tensor, of_b: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales of A [M, K/128] and of B [.., K/128 or more, N/128] as it wants them."""
    steps = -(-k // BLOCK)
    m = of_a.shape[0]
    columns = of_a.new_zeros(steps, -(-m // 4) * 4)
    columns[:, :m] = of_a.t()[:steps]
    return columns.t()[:m], of_b.mT[..., :steps].contiguous()


def dense(of_a: torch.Tensor, of_b: torch.Tensor, k: int):
    """A call like bench/measure/scaled.py's, of (a, b, .., .., out); None where the peer is missing."""
    peer = library()
    if peer is None:
        return None
    a_scale, b_scale = scales(of_a, of_b, k)

    def call(a, b, _, __, out, *___) -> None:
        peer.fp8_gemm_nt((a, a_scale), (b.t(), b_scale), out)

    return call


def padded(sizes: list[int], step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(the row of A at each padded row, -1 where none is; the group of each, -1 likewise)."""
    rows, groups = [], []
    for group, (first, last) in enumerate(pairwise(accumulate(sizes, initial=0))):
        more = [-1] * (-(last - first) % step)
        rows += [*range(first, last), *more]
        groups += [group] * (last - first) + more
    return torch.tensor(rows, dtype=torch.int32), torch.tensor(groups, dtype=torch.int32)


def grouped(layer: dict, inputs: list[tuple]):
    """(a call like bench/measure/scaled_groups.py's, the row of its D that each row of ours is); None where the peer is
    missing. Its operands are made here, of every one of `inputs`."""
    peer = library()
    if peer is None:
        return None
    rows, groups = padded(layer["sizes"], peer.get_mk_alignment_for_contiguous_layout())
    rows, groups = rows.to(inputs[0][0].device).long(), groups.to(inputs[0][0].device)
    made = {}
    for a, b, _, __, ___, by_blocks, of_blocks, *____ in inputs:
        own = a.view(torch.uint8)[rows.clamp_min(0)].view(a.dtype)
        a_scale, b_scale = scales(by_blocks[rows.clamp_min(0)], of_blocks, layer["k"])
        out = torch.empty(len(rows), layer["n"], device=a.device, dtype=torch.bfloat16)
        made[a.data_ptr()] = (own, a_scale), (b.mT, b_scale), out

    def call(a, *_) -> torch.Tensor:
        left, right, out = made[a.data_ptr()]
        peer.m_grouped_fp8_gemm_nt_contiguous(left, right, out, groups)
        return out

    return call, (rows >= 0).nonzero().flatten()


def compile_one(shape: dict) -> None:
    """Its kernels for a shape, on operands of any numbers."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    groups = shape.get("groups")
    outer = (groups,) if groups else ()
    new = {"device": "cuda"}
    a = torch.empty(m, k, dtype=torch.float8_e4m3fn, **new)
    b = torch.empty(*outer, n, k, dtype=torch.float8_e4m3fn, **new).mT
    steps, blocks = -(-k // BLOCK), -(-n // BLOCK)
    of_a, of_b = torch.ones(m, steps, **new), torch.ones(*outer, steps, blocks, **new)
    out = torch.empty(m, n, dtype=torch.bfloat16, **new)
    if groups:
        call, _ = grouped(shape, [(a, b, None, None, None, of_a, of_b)])
        call(a)
    else:
        dense(of_a, of_b, k)(a, b, None, None, out)
    torch.cuda.synchronize()


def compile_all(shapes: list[dict], workers: int = WORKERS) -> None:
    """Its kernels for these, by so many processes; the peer keeps them in DG_JIT_CACHE_DIR, or the home folder."""
    if library() is None:
        return
    started = []
    for number in range(workers):
        own = json.dumps(
            [{key: one.get(key) for key in ("m", "n", "k", "groups", "sizes")} for one in shapes[number::workers]]
        )
        command = [sys.executable, "-m", "bench.measure.peer_deep_gemm"]
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        process.stdin.write(own.encode())
        process.stdin.close()
        started.append(process)
    for process in started:
        process.wait()


if __name__ == "__main__":
    for given in json.load(sys.stdin):
        try:
            compile_one(given)
        except RuntimeError as error:  # a shape that it refuses: the others' kernels are wanted all the same
            print(given, error, file=sys.stderr)
