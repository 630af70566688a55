"""The shared library and its errors: opens it, checks its ABI, turns a status into an exception. Knows no tensor."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).parent / "_lib" / "libgemm.so"


class Error(RuntimeError):
    """A call that libgemm refused or the driver failed.

    status: the C status number (libgemm_status). name: its name, such as "LIBGEMM_INVALID_ARGUMENT". The text says
    what was given and what is allowed. Nothing was launched, and the next call works.
    """

    def __init__(self, status: int, name: str, text: str):
        super().__init__(f"{name}: {text}")
        self.status = status
        self.name = name
        self.text = text

    def __reduce__(self) -> tuple[Any, ...]:
        """As made, so that it passes from one process to another."""
        return type(self), (self.status, self.name, self.text), self.__dict__


def recorded(path: Path = LIBRARY) -> dict[str, Any]:
    """What the build wrote down of the library at `path`; {} where it left nothing."""
    try:
        found = json.loads((path.parent / "platform.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def check_size(path: Path) -> None:
    """ImportError where the file ends too early: to map such a library kills the process."""
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(64)
    needed = recorded(path).get("bytes", 0)
    if header[:5] == b"\x7fELF\x02":  # 64 bits: the section headers come last
        start, entry, count = struct.unpack_from("<40xQ10xHH", header.ljust(64, b"\0"))
        needed = max(needed, start + entry * count, 64)
    if size < needed:
        raise ImportError(f"libgemm's library {path} is cut: {size} bytes, {needed} expected: install it again")


def open_library(path: Path = LIBRARY) -> tuple[Any, Any]:
    """(ffi, lib) of the library at `path`. ImportError says which file is missing, cut or of another ABI."""
    try:
        from libgemm._ffi import ABI, ffi
    except ModuleNotFoundError as error:
        raise ImportError(f"libgemm is not built: {error.name} is missing; run `make build`") from error
    if not path.is_file():
        raise ImportError(f"libgemm's library is missing: {path}; install the wheel again, or run `make build`")
    check_size(path)
    try:
        lib = ffi.dlopen(str(path))
    except OSError as error:
        raise ImportError(f"libgemm's library cannot be loaded: {error}") from error
    try:
        found = lib.libgemm_abi()
    except (AttributeError, ffi.error):
        raise ImportError(f"{path} is no libgemm: it has no libgemm_abi") from None
    if found != ABI:
        raise ImportError(f"{path} has ABI {found}, this package needs ABI {ABI}: install matching versions")
    return ffi, lib


ffi, lib = open_library()


def text(pointer: Any) -> str:
    return str(ffi.string(pointer).decode("utf-8", "replace"))


def check(status: int) -> None:
    """Raise Error unless `status` is LIBGEMM_OK."""
    if status:
        raise Error(status, text(lib.libgemm_status_name(status)), text(lib.libgemm_last_error()))


def invalid(message: str) -> Error:
    """The Error for an argument refused before the library is called."""
    return Error(lib.LIBGEMM_INVALID_ARGUMENT, "LIBGEMM_INVALID_ARGUMENT", message)


def get_struct(name: str, index: int, getter: Callable[[int, Any], int]) -> Any:
    """One info struct of the library, filled."""
    struct = ffi.new(f"{name} *")
    struct.size = ffi.sizeof(name)
    check(getter(index, struct))
    return struct
