"""One named check: contexts, each question of contexts.py in a process of its own, which alone can be a GPU's first."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from .edge import Context


def contexts(ctx: Context):
    """A GPU that was reset; with two GPUs also a process that uses the second alone, and memory of a peer."""
    script, package = Path(__file__).with_name("contexts.py"), str(Path(ctx.lib.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([package, os.environ.get("PYTHONPATH", "")])}
    for what in ("reset", "second", "peer")[: 3 if torch.cuda.device_count() > 1 else 1]:
        done = subprocess.run([sys.executable, str(script), what], env=env, capture_output=True, text=True)
        words = done.stdout + done.stderr * bool(done.returncode)
        yield [f"{what}: {line}" for line in words.splitlines()]
