"""The build step that makes shortlists: what it keeps, what it needs, what it says. Chooses nothing itself."""

import dataclasses
import re

import pytest
from sample import sample_artifact

import build.shortlist as made
from aot.manifest import make_manifest
from aot.pack import pack
from aot.render import in_table_order, render, render_shortlists
from build.compile_all import BuildError
from kernels.table.variants import variants


def rows_of(target: int) -> list:
    """One bucket's rows, and those that add up behind it, of made-up kernels."""
    found = variants((target,), ("bf16",))
    chosen = [v for v in found if v.problem == found[0].problem or v.problem.op == "gemm_sum"]
    return in_table_order([(v, sample_artifact(v)) for v in chosen])


def generated(rows) -> dict:
    return render(rows, pack([artifact for _, artifact in rows]), make_manifest(rows, "0", {}))


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(made, "DRAWS", 2000)


def test_a_list_is_made_once_and_kept(tmp_path, few, monkeypatch):
    rows = rows_of(90)
    first = made.shortlists(rows, generated(rows), tmp_path / "kept", 2)
    assert "shortlist_count = 1;" in first and first.count("static const") == 1
    monkeypatch.setattr(made, "make_program", None)  # nothing is compiled now
    assert made.shortlists(rows, generated(rows), tmp_path / "kept", 1) == first
    assert len(list((tmp_path / "kept").iterdir())) == 1


def test_the_number_of_processes_changes_nothing(tmp_path, few):
    rows = rows_of(90)
    one, three = (made.shortlists(rows, generated(rows), tmp_path / str(jobs), jobs) for jobs in (1, 3))
    assert one == three


def test_a_list_is_the_same_beside_another_target_s_rows(tmp_path, few):
    own = rows_of(90)
    both = in_table_order([*rows_of(80), *own])
    alone, beside = (made.shortlists(rows, generated(rows), tmp_path / str(len(rows)), 1) for rows in (own, both))
    lists = [re.findall(r"static const .*?noted_(\d+)\S+ = (.*?);", text, re.S) for text in (alone, beside)]
    ((first, words),), ((later, same),) = lists
    assert int(first) == 0 < int(later) and words == same


def test_what_is_kept_is_of_what_chooses_and_of_no_kernel():
    (variant, artifact), *others = rows_of(90)
    other_kernel = dataclasses.replace(artifact, cubin=artifact.cubin + b"\0")
    larger = dataclasses.replace(artifact, shared_bytes=artifact.shared_bytes + 1024)
    key = made.key_of([(variant, artifact), *others])
    assert made.key_of([(variant, other_kernel), *others]) == key
    assert made.key_of([(variant, larger), *others]) != key != made.key_of(others)


def test_rows_that_nobody_measured_have_no_lists(tmp_path):
    rows = rows_of(80)
    assert made.shortlists(rows, generated(rows), tmp_path / "kept", 1) == render_shortlists()
    assert not (tmp_path / "kept").exists()


def test_a_bucket_like_another_takes_its_list():
    text = render_shortlists("9 as 4\n4 a b\n")
    assert "{ 4, 2 / SHORTLIST_BINS, noted_4}" in text and "{ 9, 2 / SHORTLIST_BINS, noted_4}" in text
    assert text.count("static const") == 1 and "shortlist_count = 2" in text


def test_a_compiler_whose_programs_do_not_run_here_is_told(tmp_path, few, monkeypatch):
    rows = rows_of(90)
    monkeypatch.setenv("HOSTCC", "no-such-cc")
    with pytest.raises(BuildError, match="no C compiler 'no-such-cc' for programs of the build: set HOSTCC"):
        made.shortlists(rows, generated(rows), tmp_path / "kept", 1)
    foreign = tmp_path / "foreign"  # leaves what no machine runs
    foreign.write_text('#!/bin/sh\nfor last; do case "$before" in -o) printf "\\1" > "$last"; chmod +x "$last";; esac; '
                       'before="$last"; done\n')  # fmt: skip
    foreign.chmod(0o755)
    monkeypatch.setenv("HOSTCC", str(foreign))
    with pytest.raises(BuildError, match=r"shortlist does not run here .*: set HOSTCC to a compiler for this machine"):
        made.shortlists(rows, generated(rows), tmp_path / "kept", 1)
    assert not (tmp_path / "kept").exists()


def test_a_program_that_fails_is_told_with_its_words(tmp_path):
    program = tmp_path / "shortlist"
    program.write_text("#!/bin/sh\necho went wrong >&2\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(BuildError, match="shortlist ended with 3: went wrong"):
        made.printed_by(program, 1, 1)
