"""Merging measurements: one scale, the newer times, and nothing lost. Measures nothing; no GPU."""

import json
import lzma

import pytest

from bench.suites.records import files, measured, name_of, packed_path, read, write_packed
from build.tune import fit, merge

HEAD = {"build_id": "b1", "device": "NVIDIA H200", "dtype": "bf16", "date": "monday"}
LATER = {**HEAD, "build_id": "b2", "date": "friday"}


def row(m: int, known: bool = False, **us: float) -> dict:
    return {"m": m, "n": 64, "k": 128, "layout": "nt", "spread": 0.01, "us": us, "known": known}


def test_what_is_packed_reads_back(tmp_path):
    path = tmp_path / "sm90.jsonl.xz"
    write_packed(path, HEAD, [row(1, a=2.0)])
    assert read(path) == (HEAD, [row(1, a=2.0)])
    assert lzma.decompress(path.read_bytes()).count(b"\n") == 2
    assert files(tmp_path) == [path] and measured(tmp_path) == [row(1, a=2.0)]


@pytest.mark.parametrize(("name", "found"), [("sm90.jsonl", "sm90"), ("sm90_grouped_mm.jsonl.xz", "sm90_grouped_mm")])
def test_a_file_s_name_says_what_it_is_of(tmp_path, name, found):
    assert name_of(tmp_path / name) == found
    assert packed_path(tmp_path / name) == tmp_path / f"{found}.jsonl.xz"
    with pytest.raises(ValueError, match=r"sm90\.json: measurements end in"):
        name_of(tmp_path / "sm90.json")


def test_new_times_are_brought_to_the_old_ones_scale_shape_by_shape():
    kept = HEAD, [row(1, a=10.0, b=20.0), row(2, a=10.0)]
    added = LATER, [row(1, a=11.0, b=22.0, c=33.0), row(2, a=8.0, c=16.0), row(3, c=5.0, known=True)]
    head, rows = merge.merged(kept, added)
    assert [one["m"] for one in rows] == [1, 2, 3]
    assert rows[0]["us"] == {"a": 10.0, "b": 20.0, "c": 30.0}  # 1.1 times as slow a day
    assert rows[1]["us"] == {"a": 10.0, "c": 20.0}
    usual = (1 / 1.1 + 1.25) / 2
    assert rows[2] == {**row(3, c=round(5.0 * usual, 3), known=True), "build": "b2"}
    assert fit.runs_of(head) == [("b2", 0)]
    assert head == {**HEAD, "merged": [{"build_id": "b2", "date": "friday", "shapes": 3, "scale": round(usual, 4)}]}


def test_a_tile_that_was_measured_again_has_its_new_time_and_the_others_stay():
    kept, added = (HEAD, [row(1, True, a=10.0, b=20.0, c=30.0)]), (LATER, [row(1, a=10.0, b=20.0, c=15.0)])
    (found,) = merge.merged(kept, added)[1]
    assert found == {**row(1, True, a=10.0, b=20.0, c=15.0), "latest": ["a", "b", "c"], "build": "b2"}


def test_of_what_people_run_a_line_says_which_times_are_of_the_last_run():
    kept, added = (HEAD, [row(1, True, a=10.0, b=20.0), row(2, a=1.0)]), (LATER, [row(1, True, a=10.0, c=5.0)])
    head, rows = merge.merged(kept, added)
    assert [one.get("latest") for one in rows] == [["a", "c"], None]
    (first, _) = merge.merged((head, rows), (LATER, [row(1, True, b=19.0, c=4.0)]))[1]
    assert first["latest"] == ["b", "c"]
    another = {**LATER, "device": "another", "build_id": "b3"}
    ahead, (other, _) = merge.merged((head, rows), (another, [row(1, True, b=19.0)]), "a card")
    assert other["latest"] == ["a", "c"]
    assert (other["build"], fit.runs_of(ahead)) == ("b2", [("b2", 0)])
    (new,) = merge.merged((HEAD, []), (LATER, [row(3, True, a=2.0)]))[1]
    assert "latest" not in new  # all of it is


def test_a_run_of_many_rows_alone_is_noted_as_such():
    head, _ = merge.merged((HEAD, []), (LATER, [row(200, a=2.0)]), rows_from=130)
    assert fit.runs_of(head) == [("b2", 130)]
    with pytest.raises(merge.MergeError, match="a shape of 129"):
        merge.merged((HEAD, []), (LATER, [row(129, a=2.0)]), rows_from=130)


def test_each_merge_is_noted_after_those_before():
    head = {**HEAD, "merged": "by hand"}
    for _ in range(2):
        head, _ = merge.merged((head, [row(1, a=1.0)]), (LATER, [row(1, a=1.0)]))
    assert [note if isinstance(note, str) else note["build_id"] for note in head["merged"]] == ["by hand", "b2", "b2"]


@pytest.mark.parametrize(
    ("head", "rows", "words"),
    [
        ({**LATER, "device": "NVIDIA H100"}, [row(1, a=1.0)], "device = 'NVIDIA H100', the kept .* 'NVIDIA H200'"),
        ({**LATER, "dtype": "f16"}, [row(1, a=1.0)], "dtype = 'f16'"),
        (LATER, [row(1, z=1.0), row(9, a=1.0)], "none of 2 shapes has a tile that was measured before"),
    ],
)
def test_runs_without_a_common_scale_are_refused(head, rows, words):
    with pytest.raises(merge.MergeError, match=words):
        merge.merged((HEAD, [row(1, a=1.0)]), (head, rows))


def lines(head: dict, *rows: dict) -> str:
    return "".join(json.dumps(one) + "\n" for one in (head, *rows))


def test_the_command_takes_in_what_is_there_and_a_refused_file_stays(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(merge, "MEASURED", tmp_path)
    monkeypatch.setattr(merge.take_in, "__defaults__", (tmp_path, None, False, 0))
    monkeypatch.setattr(merge.sys, "argv", ["merge"])
    fresh, kept = tmp_path / "sm90.jsonl", tmp_path / "sm90.jsonl.xz"
    fresh.write_text(lines(HEAD, row(1, a=1.0)))
    assert merge.main() == 0 and not fresh.exists()  # the first of its name is packed as it is
    assert read(kept) == (HEAD, [row(1, a=1.0)])

    fresh.write_text(lines({**LATER, "device": "another"}, row(1, a=1.0)))
    before = kept.read_bytes()
    assert merge.main() == 1 and fresh.exists() and kept.read_bytes() == before
    assert "sm90.jsonl: device = 'another'" in capsys.readouterr().err

    elsewhere = tmp_path / "elsewhere" / "sm90.jsonl"
    elsewhere.parent.mkdir()
    fresh.rename(elsewhere).write_text(lines(LATER, row(1, a=2.0, b=4.0)))
    monkeypatch.setattr(merge.sys, "argv", ["merge", str(elsewhere), "--rows-from", "1"])
    assert merge.main() == 0 and elsewhere.exists()
    assert fit.runs_of(read(kept)[0]) == [("b2", 1)]
    assert read(kept)[1] == [{**row(1, a=1.0, b=2.0), "build": "b2"}]


def test_another_card_is_taken_in_by_name_and_drawn_shapes_are_nobody_s(tmp_path, monkeypatch):
    monkeypatch.setattr(merge.take_in, "__defaults__", (tmp_path, None, False, 0))
    kept, other = tmp_path / "sm90.jsonl.xz", tmp_path / "other" / "sm90.jsonl"
    write_packed(kept, HEAD, [row(1, a=1.0)])
    other.parent.mkdir()
    other.write_text(lines({**LATER, "device": "NVIDIA H100"}, {**row(2, a=3.0), "known": True}))
    monkeypatch.setattr(merge.sys, "argv", ["merge", str(other), "--card", "an H100: few rows", "--drawn"])
    assert merge.main() == 0
    head, rows = read(kept)
    assert head["device"] == HEAD["device"] and head["merged"][-1]["card"] == "an H100: few rows"
    assert rows == [row(1, a=1.0), {**row(2, a=3.0), "known": False}]
    other.write_text(lines({**LATER, "device": "NVIDIA H100", "dtype": "f16"}, row(3, a=1.0)))
    assert merge.main() == 1 and read(kept) == (head, rows)


def test_a_full_disk_leaves_the_kept_measurements(tmp_path, monkeypatch):
    path = tmp_path / "sm90.jsonl.xz"
    write_packed(path, HEAD, [row(1, a=1.0)])
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_packed(path, HEAD, [])
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def test_fitting_refuses_what_was_not_merged(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fit.sys, "argv", ["fit", str(tmp_path / "sm90.jsonl"), str(tmp_path / "sm90.jsonl.xz")])
    with pytest.raises(SystemExit):
        fit.main()
    assert "sm90: measured in two files; `python -m build.tune.merge` makes them one" in capsys.readouterr().err
