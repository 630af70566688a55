"""Assembly in Hopper's kernels: what no piece of it may ask for. Compiles nothing.

A piece that reads %tid.x makes the assembler take all threads of the kernel for apart: TMA's operands then go through
loops over them, a hundred cycles a copy (bench/NOTES.md). The thread's number is an operand (team.py, thread_number).
"""

import re
from pathlib import Path

DEVICE = Path(__file__).resolve().parents[2] / "kernels" / "device" / "sm90"
# Where all warps of a block load and multiply, no warp is the loader's alone.
MAY_ASK = {"mainloop.py"}


def test_no_assembly_asks_for_its_thread():
    asks = {path.name for path in DEVICE.glob("*.py") if re.search(r", ?%tid", path.read_text())}
    assert asks == MAY_ASK
