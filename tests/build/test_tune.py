"""Tuning's record: it goes on where it stopped, and refuses another build's. Measures nothing; no GPU, no torch."""

import json
import math
from types import SimpleNamespace

import pytest

from bench.suites.roofline import floor_us
from bench.suites.scaled import LIST
from build.tune import dense as tune
from build.tune.candidates import candidates

HEAD = {"build_id": "b1", "device": "NVIDIA H200", "dtype": "bf16", "torch": "2.9", "date": "today"}
SHAPES = [(1, 64, 128, "nt"), (8, 8, 8, "nn"), (4096, 512, 72, "tt")]


def line(shape, **fields) -> str:
    return json.dumps({**dict(zip(("m", "n", "k", "layout"), shape, strict=True)), **fields}) + "\n"


def test_a_new_record_begins_with_its_head(tmp_path):
    path = tmp_path / "tuning" / "sm90.jsonl"
    assert tune.read_done(path, HEAD) == set()
    assert [json.loads(text) for text in path.read_text().splitlines()] == [HEAD]


def test_a_record_says_what_is_done(tmp_path):
    path = tmp_path / "sm90.jsonl"
    tune.read_done(path, HEAD)
    with path.open("a") as file:
        file.writelines(line(shape, us={"a": 1.5}, wrong=[]) for shape in SHAPES[:2])
    before = path.read_text()
    assert tune.read_done(path, {**HEAD, "date": "tomorrow", "torch": "3.0"}) == set(SHAPES[:2])
    assert path.read_text() == before


@pytest.mark.parametrize("key", ["build_id", "device", "dtype"])
def test_another_build_s_record_is_refused_and_left_alone(tmp_path, key):
    path = tmp_path / "sm90.jsonl"
    tune.read_done(path, HEAD)
    before = path.read_text()
    with pytest.raises(SystemExit, match=rf"sm90.jsonl holds {key} {HEAD[key]}, this is other: move it away first"):
        tune.read_done(path, {**HEAD, key: "other"})
    assert path.read_text() == before


class Queues:
    """In place of worker processes: each shape's answer is there at once."""

    def __init__(self, answer):
        self.answer, self.asked, self.killed, self.waits_at_exit = answer, [], 0, True

    def Queue(self):
        return self

    def Process(self, target, args):
        return self

    def start(self):
        pass

    def kill(self):
        self.killed += 1

    def cancel_join_thread(self):
        self.waits_at_exit = False

    def put(self, shape):
        self.asked.append(shape)

    def get(self, timeout):
        return self.answer(next(shape for shape in self.asked if shape and not self.asked.remove(shape)))


def row_of(shape) -> dict:
    return json.loads(line(shape, us={"tile": 2.0}))


@pytest.fixture
def queues(monkeypatch):
    found = Queues(row_of)
    monkeypatch.setattr(tune.multiprocessing, "get_context", lambda _: found)
    return found


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path, queues):
    path = tmp_path / "sm90.jsonl"
    tune.run(SHAPES, {SHAPES[0]}, HEAD, path, 2, 0.0)  # no time: one shape, then it stops
    assert tune.read_done(path, HEAD) == {SHAPES[0]} and queues.killed == 2
    assert not queues.waits_at_exit
    queues.asked.clear()
    tune.run(SHAPES, {SHAPES[0]}, HEAD, path, 2, math.inf)
    assert queues.asked == [None, None]  # the shape done before was not asked for again
    rows = [json.loads(text) for text in path.read_text().splitlines()[1:]]
    assert rows == [{**row_of(shape), "known": shape == SHAPES[0]} for shape in SHAPES]
    tune.run(SHAPES, {SHAPES[0]}, HEAD, path, 1, math.inf)
    assert len(path.read_text().splitlines()) == 1 + len(SHAPES)


def test_a_worker_s_failure_stops_the_run_and_keeps_what_is_done(tmp_path, queues):
    path = tmp_path / "sm90.jsonl"
    queues.answer = lambda shape: row_of(shape) if shape != SHAPES[1] else f"{shape}: RuntimeError: lost"
    with pytest.raises(SystemExit, match="RuntimeError: lost"):
        tune.run(SHAPES, {SHAPES[0]}, HEAD, path, 3, math.inf)
    assert tune.read_done(path, HEAD) == {SHAPES[0]} and queues.killed == 3


def test_recorded_shapes_are_a_line_each(tmp_path):
    path = tmp_path / "shapes.jsonl"
    path.write_text(
        '{"m": 1, "n": 64, "k": 128, "layout": "NT", "count": 9}\n\n{"m": 8, "n": 8, "k": 8, "layout": "nn"}\n'
    )
    assert tune.recorded_shapes(path) == SHAPES[:2]
    path.write_text('{"m": 1, "n": 64, "layout": "NT"}\n')
    with pytest.raises(KeyError, match="k"):
        tune.recorded_shapes(path)


def test_drawn_shapes_are_such_as_the_copy_engine_reads_and_always_the_same():
    drawn = [tune.draw_shape(seed, "bf16") for seed in range(300)]
    assert drawn == [tune.draw_shape(seed, "bf16") for seed in range(300)] and len(set(drawn)) > 290
    for m, n, k, layout in drawn:
        assert min(m, n, k) > 0 == n % 8  # rows of D
        assert floor_us({"m": m, "n": n, "k": k, "dtype": "bf16"}) < 3000
        assert (m if layout[0] == "t" else k) % 8 == (k if layout[1] == "t" else n) % 8 == 0  # of A and B as stored
    assert {layout for *_, layout in drawn} == {"nn", "nt", "tn", "tt"}
    assert all(n % 8 == k % 8 == 0 for _, n, k, _ in tune.suite("bf16")) and len(tune.suite("bf16")) > 40
    assert [shape[:3] for shape in tune.suite("e4m3_blocks")] == [*LIST] and {s[3] for s in tune.suite("e4m3")} == {
        "nt"
    }


def test_candidates_that_cannot_win_are_not_run():
    worker = object.__new__(tune.Worker)
    worker.type = SimpleNamespace(itemsize=2)
    worker.rows, worker.multiprocessors = {v.name: v for v in candidates()}, 132
    few, many = worker.near(1, 4096, 4096, "nt"), worker.near(8192, 8192, 8192, "tn")
    assert {worker.rows[name].problem.layout for name in few} == {"nt"}
    tiles = [{worker.rows[name].fit_name for name in names} for names in (few, many)]
    assert "8x64x128_pingpong_swap" in tiles[0] - tiles[1] and "128x256x64_coop" in tiles[1] - tiles[0]
    assert "192x192x64_coop" in tiles[1]
    assert "64x16x128_pingpong" not in tiles[1]
