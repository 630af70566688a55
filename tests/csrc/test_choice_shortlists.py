"""Shortlists lose next to nothing, and are left aside where they were not made for. Needs no GPU; times nothing."""

import random
import re
import secrets
import subprocess
from pathlib import Path

import pytest
from built import needs

from build.shortlist import make_program
from build.tune import choosing

pytestmark = needs(90)  # rows that were measured are Hopper's


@pytest.fixture(scope="module")
def files():
    return choosing.files()


@pytest.fixture(scope="module")
def program(files, tmp_path_factory):
    return make_program(files, choosing.PROGRAM, tmp_path_factory.mktemp("choosing"), "choosing")


@pytest.mark.parametrize("kind", choosing.CASES)
def test_a_shortlist_has_the_best_row_or_one_nearly_as_good(program, kind):
    seed = secrets.randbelow(10**9)
    found = choosing.measure(program, choosing.CASES[kind], random.Random(seed), 10_000)
    assert found["differ"] < 0.02 and found["mean_loss"] < 0.0005, (seed, found)


def test_shortlists_are_left_aside_where_they_were_not_made_for(files, tmp_path):
    main = Path(__file__).with_name("c") / "shortlist.c"
    done = subprocess.run([make_program(files, main, tmp_path)], capture_output=True, text=True, check=True)
    pattern = r"(.+): (\d+) asked, (\d+) listed, (\d+) differ, (\S+)"
    found = {name: list(map(float, rest)) for name, *rest in re.findall(pattern, done.stdout)}
    for name in ("batch invariant", "part of a GPU", "not for TMA", "a batch"):
        asked, listed, differ, _ = found[name]
        assert asked > 5000 and listed == differ == 0, (name, found)
    for name in ("usual", "little workspace"):
        asked, listed, differ, loss = found[name]
        assert listed > 0.9 * asked and differ < 0.01 * asked and loss < 0.0005, (name, found)
