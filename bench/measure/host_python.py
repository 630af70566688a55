"""What calls cost the host from Python, beside torch: batches in turn, of sizes seen before and never before. Used by
host.py, which says how; proves no numerics."""

import itertools
import time

FRESH_REPEATS = 21  # batches of calls of which each has an m that none had before: fewer, cuBLAS looks long for each
GROUP_ROWS = (50,) * 8


def alternate(runs: dict, synchronise, repeats: int) -> dict[str, float]:
    """Median of what each of `runs` measures, in turn and each from an empty queue."""
    found = {name: [] for name in runs}
    for turn in range(repeats + 2):
        for name, run in runs.items():
            synchronise()
            value = run()
            if turn >= 2:  # the first two warm up
                found[name].append(value)
    synchronise()
    return {name: sorted(values)[repeats // 2] for name, values in found.items()}


def python_run(call, sets: list, calls: int):
    """A batch of about so many Python calls, on each of these operands in turn."""

    def run() -> float:
        start = time.perf_counter_ns()
        for _ in range(calls // len(sets)):
            for one in sets:
                call(*one)
        return (time.perf_counter_ns() - start) * 1e-3 / (calls // len(sets) * len(sets))

    return run


def paired(runs: dict, wait, repeats: int) -> dict:
    """A row of the report: libgemm from Python beside torch."""
    us = alternate(runs, wait, repeats)
    return {"python_us": us["python"], "torch_us": us["torch"], "python_ratio": us["python"] / us["torch"]}


def fresh_rows(calls: int, repeats: int = FRESH_REPEATS) -> dict:
    """Rows of the report, in batches of `calls`: dense calls of sizes that none had before, and packed groups,
    known and of new sizes."""
    import libgemm
    import torch

    wait, size, first = torch.cuda.synchronize, 512, sum(GROUP_ROWS)
    most = first + (repeats + 2) * calls
    a = torch.randn(most, size, device="cuda").to(torch.bfloat16)
    d = torch.empty(most, size, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(len(GROUP_ROWS), size, size, device="cuda").to(torch.bfloat16)
    offs = torch.tensor(list(itertools.accumulate(GROUP_ROWS)), device="cuda", dtype=torch.int32)
    sizes = [(a[:m], d[:m]) for m in range(1, most + 1)]

    def fresh(call, start: int = 0):
        """Batches of calls, each of the next size; of groups' rows from those on that they fill."""
        left = iter(sizes[start:])

        def run() -> float:
            batch = list(itertools.islice(left, calls))
            begun = time.perf_counter_ns()
            for one in batch:
                call(*one)
            return (time.perf_counter_ns() - begun) * 1e-3 / len(batch)

        return run

    dense = {
        "python": lambda x, out: libgemm.gemm(x, b[0], out=out),
        "torch": lambda x, out: torch.mm(x, b[0], out=out),
    }
    groups = {
        "python": lambda x, out: libgemm.grouped_mm(x, b, offs, out=out),
        "torch": lambda x, out: torch._grouped_mm(x, b, offs),
    }
    of_dense = f"m x {size} x {size} NN, a new m at each call"
    of_groups = f"{len(GROUP_ROWS)} groups of {GROUP_ROWS[0]} x {size} x {size}, against torch._grouped_mm"
    return {
        of_dense: paired({who: fresh(call) for who, call in dense.items()}, wait, repeats),
        of_groups: paired(
            {who: python_run(call, [sizes[first - 1]], calls) for who, call in groups.items()}, wait, repeats
        ),
        "the same, as many rows as no call had before": paired(
            {who: fresh(call, first) for who, call in groups.items()}, wait, repeats
        ),
    }
