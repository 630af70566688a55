"""A choice is the same on a processor with AVX2 and on one without. Needs no GPU; proves no choice right."""

import re
import subprocess

import pytest
from built import needs
from stand_in import run
from test_capi_threads import PROGRAMS, core_in

pytestmark = needs(90)  # rows that were measured are Hopper's


def test_avx2_changes_no_choice_and_no_time(tmp_path):
    folder = core_in(tmp_path / "core", 90)
    others = [path for path in sorted(folder.rglob("*.c")) if path != folder / "select" / "cost.c"]
    flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{folder}"]
    program = tmp_path / "eights"
    command = ["cc", *flags, "-o", str(program), *map(str, others), str(PROGRAMS / "eights.c"), "-ldl", "-lpthread"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    done = run(program, driver=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "no AVX2" in done.stdout:
        pytest.skip("this processor has no AVX2")
    compared, different = map(int, re.findall(r"\d+(?= compared| times)", done.stdout))
    assert compared > 10_000 and different > 5_000
