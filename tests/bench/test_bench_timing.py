"""In what order calls are timed beside each other. Needs no GPU; times nothing."""

import itertools
from collections import Counter

import pytest

pytest.importorskip("torch")
from bench.measure import timing

CALLS = {"ours": 3.0, "torch": 5.0, "other": 4.0}


@pytest.fixture
def replayed(monkeypatch):
    """Names in the order of their replays, each of which takes its number of microseconds."""
    found = []
    monkeypatch.setattr(timing, "capture", lambda call, inputs: call)
    monkeypatch.setattr(timing, "wake", lambda graphs: found.append(f"awake by {len(graphs)}"))
    monkeypatch.setattr(timing, "replay_us", lambda name, calls: found.append(name) or CALLS[name])
    monkeypatch.setattr(timing, "launched_us", lambda name, inputs, count: found.append(name) or CALLS[name])
    return found


@pytest.mark.parametrize("launched", [False, True])
def test_nobody_always_follows_the_same_one(replayed, launched):
    calls = {name: name for name in CALLS}
    us = timing.alternate_launched(calls, [()], 1, 21) if launched else timing.alternate(calls, [()], 1.0)
    assert us == CALLS
    if not launched:
        assert replayed.pop(0) == "awake by 3"
    rounds = [replayed[i : i + 3] for i in range(3 if launched else 0, len(replayed), 3)]  # behind the warm-up
    assert len(rounds) == 21 and all(sorted(names) == sorted(CALLS) for names in rounds)
    pairs = Counter(itertools.pairwise(itertools.chain.from_iterable(rounds)))
    assert all(pairs[before, after] >= 5 for before, after in itertools.permutations(CALLS, 2))


def test_a_device_is_awake_once_it_was_busy_with_all_graphs_for_so_long(monkeypatch):
    clock, replays = itertools.count(0, timing.AWAKE_S / 3), Counter()
    monkeypatch.setattr(timing.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(timing.torch.cuda, "synchronize", lambda: None)
    timing.wake([type("Graph", (), {"replay": lambda _, name=name: replays.update([name])})() for name in CALLS])
    assert dict(replays) == dict.fromkeys(CALLS, 2)


def test_orders_are_the_same_at_every_run():
    assert list(timing.orders(CALLS, 7)) == list(timing.orders(CALLS, 7))
