"""The wheel's platform tag, from what the linker measured; refuses to build a wheel without that very library."""

import hashlib
import json
from pathlib import Path

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CustomBuildHook(BuildHookInterface):
    def initialize(self, version, build_data):
        folder = Path(self.root) / "libgemm" / "_lib"
        missing = [name for name in ("libgemm.so", "libgemm.h", "platform.json") if not (folder / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{', '.join(missing)} missing in {folder}: run `make build` first")
        platform = json.loads((folder / "platform.json").read_text())
        if hashlib.sha256((folder / "libgemm.so").read_bytes()).hexdigest() != platform["sha256"]:
            raise ValueError(f"{folder / 'libgemm.so'} is not the library of platform.json: run `make build` again")
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-manylinux_{}_{}_{}".format(*platform["glibc"], platform["machine"])
