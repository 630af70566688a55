"""Tensor cores are waited for step by step. Where the assembler cannot follow an accumulator, as when loops that begin
sums end in one place, it waits for every instruction: the same results, at down to a tenth of the speed.
"""

import random
import re
import subprocess
from pathlib import Path

import pytest
import triton
from shipped import rows_of_kernels, shipped

from aot.compile import is_gluon, kernel_function

SEED = random.SystemRandom().randrange(1 << 32)
DISASSEMBLER = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
WITHOUT = ("cast_transpose_rows_words",)  # kernels that multiply nothing
STEP = 4  # instructions' K in a line of 128 bytes, and so instructions in a step at least


def runs(text: str) -> list[int]:
    """Of the machine code's instructions for the tensor cores, how many come one after the other with no wait."""
    found = [0]
    for word in re.findall(r"\b[A-Z]GMMA\b|WARPGROUP\.DEPBAR", text):
        if word.endswith("GMMA"):
            found[-1] += 1
        else:
            found.append(0)
    return [length for length in found if length]


def share_in_steps(text: str) -> float:
    """Of all instructions. The rest are those of a last step of K, of which less is there."""
    lengths = runs(text)
    return sum(length for length in lengths if length >= STEP) / sum(lengths)


ROWS = rows_of_kernels((90,), lambda variant: is_gluon(kernel_function(variant)))


@pytest.mark.parametrize("kernel", sorted(ROWS))
def test_a_row_of_each_kernel_drawn_anew_has_whole_steps_under_way(tmp_path, kernel):
    variant = random.Random(f"{SEED} {kernel}").choice(ROWS[kernel])
    (tmp_path / "cubin").write_bytes(shipped(variant).cubin)
    text = subprocess.run([DISASSEMBLER, "-c", tmp_path / "cubin"], capture_output=True, text=True, check=True).stdout
    if runs(text):
        assert share_in_steps(text) >= 0.6, f"{variant.name} waits within steps (seed {SEED}): {runs(text)}"
    else:
        assert kernel.split(".")[-1] in WITHOUT


def test_waits_for_every_instruction_are_told():
    whole = "HGMMA.64x8 ;\n" * 4 + "WARPGROUP.DEPBAR.LE gsb0 ;\n"
    assert runs(whole * 2) == [4, 4]
    assert share_in_steps(whole + "HGMMA.64x8 ;\nWARPGROUP.DEPBAR.LE gsb0 ;\n") == 0.8
    assert share_in_steps("QGMMA.64x8 ;\nWARPGROUP.DEPBAR.LE gsb0 ;\n" * 8) == 0
