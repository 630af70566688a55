"""Artifacts on disk by content key. A record is written to a temporary folder, then renamed: whole or absent."""

import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from aot.artifact import Artifact
from aot.compile import DEVICE, source_closure
from aot.retype import told_by
from aot.toolchain import ENVIRONMENT, assembler
from kernels.table.arguments import ARGUMENTS, TENSORS
from kernels.table.spec import Variant

ROOT = Path(__file__).resolve().parent.parent
# Of aot/: what drives the compiler and reads its work.
DRIVERS = ("compile.py", "elf.py", "params.py", "retype.py", "toolchain.py")
FORMAT = 4  # of the record; a change makes old entries unreachable


def digest(*parts: bytes | str) -> str:
    sha = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        sha.update(len(data).to_bytes(8, "little") + data)
    return sha.hexdigest()


class Cache:
    """Keys cover all that decides a cubin: kernel sources, constants, options, target, Triton and its assembler."""

    def __init__(self, folder: Path, min_driver: int | None):
        self.folder = folder
        self.min_driver = min_driver
        self.sources: dict[str, tuple[str, set[str]]] = {}
        self.toolchain = digest(
            str(FORMAT),
            importlib.metadata.version("triton"),
            json.dumps(ENVIRONMENT, sort_keys=True),
            *((ROOT / "aot" / name).read_bytes() for name in DRIVERS),
        )

    def source(self, kernel: str) -> tuple[str, set[str]]:
        """A digest of the kernel's sources, and the words in them."""
        if kernel not in self.sources:
            files = source_closure(kernel)
            words = set(re.findall(r"\w+", " ".join(f.read_text() for f in files)))
            types = json.dumps({name: kind for name, kind in ARGUMENTS.items() if name in words})
            texts = {str(f.relative_to(DEVICE)): f.read_bytes() for f in files}
            self.sources[kernel] = digest(types, *(part for text in texts.items() for part in text)), words
        return self.sources[kernel]

    def key(self, variant: Variant) -> str:
        source, words = self.source(variant.kernel)
        constants = {name: value for name, value in variant.constexprs().items() if name in words}
        boxes = {name: variant.box(name) for name in TENSORS if name in words}
        warps, stages = variant.config.warps, variant.config.stages
        chosen = assembler(variant.target, self.min_driver)
        registers = variant.family.registers
        options = [constants, boxes, warps, stages, registers, variant.architecture, chosen]
        if base := told_by(variant):
            options.append(self.key(base))  # whose PTX is this one's
        facts = json.dumps([variant.name, variant.kernel, *options])
        return digest(self.toolchain, source, facts)

    def path(self, variant: Variant) -> Path:
        key = self.key(variant)
        return self.folder / key[:2] / key

    def load(self, variant: Variant) -> Artifact | None:
        """The artifact, or None when it is absent or damaged (then it is compiled again)."""
        path = self.path(variant)
        try:
            facts = json.loads((path / "facts.json").read_text())
            return Artifact.from_facts(facts, (path / "kernel.cubin").read_bytes())
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, OSError):
            shutil.rmtree(path, ignore_errors=True)
            return None

    def store(self, variant: Variant, artifact: Artifact) -> None:
        path = self.path(variant)
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="writing-", dir=path.parent))
        try:
            (scratch / "kernel.cubin").write_bytes(artifact.cubin)
            (scratch / "facts.json").write_text(json.dumps(artifact.launch_facts()))
            try:
                os.rename(scratch, path)
            except OSError:  # another build stored the same key first
                if not path.exists():
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
