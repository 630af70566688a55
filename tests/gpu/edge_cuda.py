"""Named checks of what only a GPU has: graph capture, streams and threads, offsets past 2^31, two GPUs."""

import contextlib
import itertools
import threading
from dataclasses import replace

import torch

from .cases import ENTRIES, RAGGED, Case, random_case
from .checks import call, mismatches, run_case, tail_problems
from .edge import Context
from .problem import Problem
from .reference import excess, expected


def captured(ctx: Context, case: Case) -> tuple[Problem, object]:
    """A case's call in a graph, not replayed yet. Tables are made before: capture may not copy from the host."""
    p = Problem(case, ctx.device)
    if case.pointers:
        _ = p.tables
    torch.cuda.synchronize(ctx.device)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(ctx.lib, p)
    torch.cuda.synchronize(ctx.device)
    return p, graph


def after_replay(p: Problem, graph) -> list[str]:
    for view in p.d:
        view.fill_(torch.nan)
    graph.replay()
    torch.cuda.synchronize(p.device)
    problems = mismatches(p, p.d) + tail_problems(p, p.d)
    return [f"{x} [replay of {p.case!r}]" for x in problems + p.d_arena.problems()]


def captured_cases():
    kinds = [(entry, "m") for entry in ENTRIES if entry != "grouped_gemm"] + [("grouped_mm", x) for x in RAGGED[1:]]
    for aligned, (entry, ragged) in itertools.product((False, True), kinds):
        pads = (8, 0, 8, 8) if aligned else (1, 3, 0, 5)
        groups = {} if entry == "gemm" else {"groups": 6, "spread": "uniform", "vary": "mnk", "ragged": ragged}
        groups |= {"zero": aligned} if entry == "grouped_mm" else {}
        groups |= {"tail": 30} if groups and ragged != "none" else {}
        yield Case(entry=entry, m=160, n=136, k=264, pads=pads, activation="relu", **groups)
    few = {"groups": 6, "spread": "full", "m": 160, "n": 136, "k": 264, "pads": (8, 0, 8, 8)}
    yield Case(entry="grouped_gemm_tables", **few, aligned=True, expected=(4096, 4096, 4096))
    # Few tiles and a long K: a cluster for each tile.
    gradient = Case(entry="grouped_mm", trans_a=True, ragged="k", groups=6, spread="uniform", m=64, n=128, k=8000)
    yield replace(gradient, activation="relu", tail=30)


def graphs(ctx: Context):
    """Capture as the first use after preload; replays see new operands and new ends. Run this check first."""
    ctx.lib.preload(torch.cuda.current_device() if ctx.device.index is None else ctx.device.index)
    for case in captured_cases():
        p, graph = captured(ctx, case)
        yield ["the captured call ran before its replay"] if any(not bool(x.isnan().all()) for x in p.d) else []
        yield after_replay(p, graph)
        for view in p.a_arena.views:
            view.normal_(generator=p.generator)
        yield after_replay(p, graph)
        if p.ends is not None:
            lead = [0] if case.entry == "grouped_gemm_jagged" else []
            rows = p.host_ends[-1]
            p.host_ends = [0, 0, rows // 3, rows // 3, rows // 2, rows - 7, rows - 2]
            p.ends.copy_(torch.tensor(lead + p.host_ends[1:], dtype=p.ends.dtype))
            yield after_replay(p, graph)


def chained(ctx: Context):
    """Grouped products one behind the other, each of what the one before it wrote, with tables of their own: a kernel
    that began before the one ahead had ended would read what is not there yet, or write over its workspace."""
    size, groups = 192, 24
    new = {"device": ctx.device, "dtype": torch.bfloat16}

    def matrices(scale: float) -> list[torch.Tensor]:
        return [torch.randn(size, size, **new) * scale for _ in range(groups)]

    def tables(a, b, d) -> dict:
        lists = {name: [x.data_ptr() for x in ones] for name, ones in (("a", a), ("b", b), ("d", d))}
        lists |= {name: [size] * groups for name in ("m", "n", "k", "lda", "ldb", "ldd")}
        return {x: torch.tensor(v, device=ctx.device) for x, v in lists.items()}

    turns = 12
    weights = [matrices(size**-0.5) for _ in range(turns)]
    steps = [matrices(1.0), *([torch.empty_like(x) for x in weights[0]] for _ in range(turns))]
    told = [tables(steps[i], weights[i], steps[i + 1]) for i in range(turns)]

    def run() -> None:
        for i in range(turns):
            guess = (4096,) * 3 if i % 2 else None  # the kernel for large groups, and the one for small ones, in turn
            ctx.lib.grouped_gemm_tables(**told[i], dtype=torch.bfloat16, aligned=True, expected=guess)

    def problems(what: str) -> list[str]:
        torch.cuda.synchronize(ctx.device)
        found = [excess(d, *expected(a, b, d_type="bf16")).amax() for i in range(turns)
                 for a, b, d in zip(steps[i], weights[i], steps[i + 1], strict=True)]  # fmt: skip
        worst = float(torch.stack(found).amax())
        for d in (d for ones in steps[1:] for d in ones):
            d.fill_(torch.nan)
        torch.cuda.synchronize(ctx.device)
        return [] if worst <= 1 else [f"{what}: error / bound {worst:.3g}"]

    for i in range(8):
        run()
        yield problems(f"chained calls, run {i}")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    for i in range(8):
        graph.replay()
        yield problems(f"chained calls, replay {i}")


def threads(ctx: Context):
    """Eight threads, each on its own stream, run random cases at the same time."""
    found: list[list[str]] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream(ctx.device) if ctx.cuda else None
        with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
            for i in range(15):
                case = random_case(900_000 + 100 * number + i, largest=400)
                try:
                    found.append(run_case(ctx.lib, case, ctx.device))
                except Exception as error:
                    found.append([f"{type(error).__name__}: {error} [{case!r}]"])
            if stream:
                stream.synchronize()

    crew = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    yield from found


def streams(ctx: Context):
    """A stream given by hand orders the call after work queued on that stream."""
    stream = torch.cuda.Stream(ctx.device)
    a, b = (torch.zeros(512, 512, dtype=torch.bfloat16, device=ctx.device) for _ in range(2))
    out = torch.empty_like(a)
    torch.cuda.synchronize(ctx.device)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        a.normal_()
        b.normal_()
    ctx.lib.gemm(a, b, out=out, stream=stream.cuda_stream)
    stream.synchronize()
    ratio = excess(out, *expected(a, b, d_type="bf16"))
    yield [] if float(ratio.amax()) <= 1 else ["a call on a stream given by hand did not wait for that stream"]


def room(ctx: Context, gib: float) -> bool:
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(ctx.device)[0] > gib * 2**30


def large_offsets(ctx: Context):
    """Matrices whose element offsets pass 2^31: D, then A and B through their leading dimensions, then groups."""
    if not room(ctx, 14):
        print("  large_offsets: skipped, less than 14 GiB of GPU memory free")
        return
    for trans_b in (False, True):
        yield large_output(ctx, trans_b)
    ld = 2**26 + 24  # 40 stored rows end past 2^31 elements, 5 GiB
    for name in ("a", "a transposed", "b", "b transposed"):
        yield large_leading(ctx, name, ld)
    for name in FAR_GROUPS:
        yield large_groups(ctx, name, ld)


def large_output(ctx: Context, trans_b: bool) -> list[str]:
    m, n, k = 70000, 40000, 16
    new = {"dtype": torch.bfloat16, "device": ctx.device}
    a, b = torch.randn(m, k, **new), torch.randn(n, k, **new).mT if trans_b else torch.randn(k, n, **new)
    flat = torch.full((m * n + 4096,), torch.nan, **new)
    flat[m * n :] = 3.0
    out = flat[: m * n].view(m, n)
    ctx.lib.gemm(a, b, out=out)
    rows = torch.cat([torch.randint(0, m, (200,)), torch.arange(m - 200, m), torch.arange(53600, 53760)])
    rows = rows.to(ctx.device)
    worst = float(excess(out[rows], *expected(a[rows], b, d_type="bf16")).amax())
    left = sum(int(part.isnan().sum()) for part in out.split(7000))
    stray = int((flat[m * n :] != 3.0).sum())
    what = f"{m}x{n} bf16 output, trans_b={trans_b}"
    problems = [f"mismatch in {what}: error / bound {worst:.3g}"] if worst > 1 else []
    problems += [f"NaN left in {what}: {left} elements"] if left else []
    return problems + ([f"stray write: {stray} elements past a {what}"] if stray else [])


def large_leading(ctx: Context, name: str, ld: int) -> list[str]:
    """One operand with 40 stored rows `ld` apart; the other small. Memory between the rows is not initialised."""
    rows, width = 40, 72
    flat = torch.empty((rows - 1) * ld + width, dtype=torch.bfloat16, device=ctx.device)
    far = flat.as_strided((rows, width), (ld, 1))
    far.normal_()
    view = far.mT if "transposed" in name else far
    near = torch.randn(72 * 72, dtype=torch.bfloat16, device=ctx.device)
    if name.startswith("a"):
        a, b = view, near[: view.shape[1] * 56].view(view.shape[1], 56)
    else:
        a, b = near[: 56 * view.shape[0]].view(56, view.shape[0]), view
    out = ctx.lib.gemm(a, b)
    worst = float(excess(out, *expected(a, b, d_type="bf16")).amax())
    return [f"mismatch with {name}, leading dimension {ld}: error / bound {worst:.3g}"] if worst > 1 else []


FAR_GROUPS = ("a of each group", "b of each group", "d of each group", "a by K", "b by K", "b by N")


def large_groups(ctx: Context, name: str, far: int) -> list[str]:
    """40 groups, of which one operand has its pieces `far` apart; the others are small. Each group cuts 1 off."""
    groups, m, n, k = 40, 24, 56, 32
    flat = torch.empty(groups * far, dtype=torch.bfloat16, device=ctx.device)
    new = {"dtype": torch.bfloat16, "device": ctx.device}

    def pieces(rows: int, cols: int) -> torch.Tensor:
        return flat.as_strided((groups, rows, cols), (far, cols, 1)).normal_()

    ends, words = torch.arange(1, groups + 1, dtype=torch.int32, device=ctx.device), {}
    a, b = torch.randn(m, groups, **new), torch.randn(groups, n, **new)  # K is cut
    if name == "a of each group":
        a, b = pieces(m, k), torch.randn(k, groups, **new)  # columns are
    elif name == "b of each group":
        a, b = torch.randn(groups, k, **new), pieces(k, n)  # rows are
    elif name == "d of each group":
        words["out"] = pieces(m, n)
    elif name == "a by K":
        a = pieces(1, m)[:, 0].mT
    elif name == "b by K":
        b = pieces(1, n)[:, 0]
    else:
        a, b = torch.randn(groups, m, k, **new), pieces(1, k)[:, 0].mT
    d = ctx.lib.grouped_mm(a, b, ends, **words)
    worst = 0.0
    for g in range(groups):
        one, two = (x[g] if x.dim() == 3 else x for x in (a, b))
        if a.dim() == b.dim():
            one, two, got = one[:, g : g + 1], two[g : g + 1], d[g]
        elif a.dim() == 2:
            one, got = one[g : g + 1], d[g : g + 1]
        else:
            two, got = two[:, g : g + 1], d[:, g : g + 1]
        worst = max(worst, float(excess(got, *expected(one, two, d_type="bf16")).amax()))
    return [f"mismatch with {name}, pieces {far} apart: error / bound {worst:.3g}"] if worst > 1 else []


def other_gpu(ctx: Context):
    """Work on a second GPU while the first is current."""
    if torch.cuda.device_count() < 2:
        return
    there = torch.device("cuda", 1)
    for entry in ENTRIES:
        case = Case(entry=entry, m=100, n=72, k=88, groups=0 if entry == "gemm" else 3, bias="row")
        yield run_case(ctx.lib, case, there)
