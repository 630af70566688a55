"""The fuzz targets for a short while: the whole corpus, then as many changed inputs as the time allows.

FUZZ_SECONDS says how long (20 each by default); the seed is printed where something is found. `make fuzz` goes on for
hours. What is checked of each launch stands in tests/fuzz/.
"""

import os
import time

import pytest

from kernels.table.variants import variants
from tests.fuzz import targets
from tests.fuzz.table import table

SECONDS = int(os.environ.get("FUZZ_SECONDS") or 20)
SEED = int(time.time())
MEMORY, THREAD = "address,undefined", "thread"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return targets.write_sources(tmp_path_factory.mktemp("fuzz") / "sources")


def needs(sanitizer: str) -> None:
    if not targets.compiles("cc", f"-fsanitize={sanitizer}"):
        pytest.skip(f"the compiler has no -fsanitize={sanitizer}")


@pytest.mark.parametrize("name", targets.FILES)
def test_no_input_is_a_finding(sources, tmp_path, name):
    libfuzzer = targets.has_libfuzzer()
    if not libfuzzer:
        needs(MEMORY)
    program = targets.build(name, sources, tmp_path / name, libfuzzer)
    print(f"seed {SEED}, {'libFuzzer' if libfuzzer else 'standalone.c'}")
    outcome = targets.fuzz(program, SEED, SECONDS, libfuzzer)
    assert outcome.inputs > len(targets.read_corpus(name)) > 10


@pytest.mark.parametrize("name", targets.FILES)
def test_the_corpus_runs_without_clang(sources, tmp_path, name):
    needs(MEMORY)
    program = targets.build(name, sources, tmp_path / name, False)
    outcome = targets.fuzz(program, SEED, 1, False)
    assert outcome.inputs > len(targets.read_corpus(name))


def test_threads_that_mix_all_calls_race_for_nothing(sources, tmp_path):
    needs(THREAD)
    print(f"seed {SEED}")
    assert targets.run_threads(targets.build_threads(sources, tmp_path / "threads"), SEED, SECONDS // 2).inputs > 100


def test_the_table_has_every_kernel_of_hopper():
    assert {v.kernel for v in table() if v.target == 90} == {v.kernel for v in variants((90,))}


def test_the_corpus_is_small():
    assert sum(path.stat().st_size for path in targets.CORPUS.iterdir()) < 200_000
