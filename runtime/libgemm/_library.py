"""The shared library and its errors: opens it, checks its ABI, turns a status into an exception. Knows no tensor."""

from pathlib import Path

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


def open_library(path: Path = LIBRARY):
    """(ffi, lib) of the library at `path`. ImportError says which file is missing or of another ABI."""
    try:
        from libgemm._ffi import ABI, ffi
    except ModuleNotFoundError as error:
        raise ImportError(f"libgemm is not built: {error.name} is missing; run `make build`") from error
    if not path.is_file():
        raise ImportError(f"libgemm's library is missing: {path}; install the wheel again, or run `make build`")
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


def text(pointer) -> str:
    return ffi.string(pointer).decode("utf-8", "replace")


def check(status: int) -> None:
    """Raise Error unless `status` is LIBGEMM_OK."""
    if status:
        raise Error(status, text(lib.libgemm_status_name(status)), text(lib.libgemm_last_error()))


def invalid(message: str) -> Error:
    """The Error for an argument refused before the library is called."""
    return Error(lib.LIBGEMM_INVALID_ARGUMENT, "LIBGEMM_INVALID_ARGUMENT", message)


def get_struct(name: str, index: int, getter):
    """One info struct of the library, filled."""
    struct = ffi.new(f"{name} *")
    struct.size = ffi.sizeof(name)
    check(getter(index, struct))
    return struct
