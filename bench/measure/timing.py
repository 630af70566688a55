"""Device time of calls, side by side: CUDA graphs over rotated inputs, in alternation, medians. Imports torch only."""

import random
import time
from collections.abc import Iterable, Iterator

import torch

L2_ESCAPE_BYTES = 200e6  # inputs are rotated through more than this, so that none is still in L2
AWAKE_S = 0.02  # of calls before any is timed: while the host makes inputs the device waits, and its clocks fall


def rotations(bytes_each: float) -> int:
    return int(max(2, min(24, L2_ESCAPE_BYTES // bytes_each + 1)))


def capture(call, inputs) -> torch.cuda.CUDAGraph:
    """A graph of `call` on each of the inputs, warmed up."""
    torch.cuda.synchronize()  # the inputs are made on another stream
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for one in inputs:
            call(*one)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for one in inputs:
            call(*one)
    graph.replay()
    return graph


def replay_us(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Microseconds of one call in one replay."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def launched_us(call, inputs, calls: int) -> float:
    """Microseconds of one call among many that the host makes one after the other, without a graph: the longer of what
    the host and what the device takes."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    start.record()
    for i in range(calls):
        call(*inputs[i % len(inputs)])
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


def orders(names: Iterable[str], rounds: int) -> Iterator[list[str]]:
    """The names in another order each round, the same at every run: who follows a call that draws little power finds
    higher clocks, and that shall not be the same one always."""
    draw = random.Random(0)
    for _ in range(rounds):
        yield draw.sample(list(names), len(names))


def wake(graphs: list[torch.cuda.CUDAGraph]) -> None:
    """Keep the device busy with all of them until its clocks are those of a device at work."""
    end = time.monotonic() + AWAKE_S
    while time.monotonic() < end:
        for graph in graphs:
            graph.replay()
        torch.cuda.synchronize()


def alternate_launched(calls: dict, inputs, count: int, repeats: int = 7) -> dict[str, float]:
    """Medians over repeats of `count` calls each, in turn as in `alternate`, without graphs: most of it is the host."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        launched_us(call, inputs, 2 * len(inputs))
    for order in orders(calls, repeats):
        for name in order:
            times[name].append(launched_us(calls[name], inputs, count))
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}


def alternate(calls: dict, inputs, floor_us: float) -> dict[str, float]:
    """Median microseconds of each call, replayed in turn, in changing order, so that drifting clocks favour none."""
    graphs = {name: capture(call, inputs) for name, call in calls.items()}
    repeats = max(5, min(21, int(1e5 / (floor_us * len(inputs) * len(calls)))))
    times = {name: [] for name in calls}
    wake(list(graphs.values()))
    for order in orders(graphs, repeats):
        for name in order:
            times[name].append(replay_us(graphs[name], len(inputs)))
    return {name: sorted(values)[len(values) // 2] for name, values in times.items()}
