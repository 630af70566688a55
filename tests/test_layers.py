"""The import rules of the tree, room by room, read from the source: kernels -> aot -> build, runtime apart."""

import ast
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# A room, and what its files may import beside the standard library and the room itself: packages of others, and rooms
# of ours. A folder that is not named here is part of the one above it.
ROOMS = {
    "kernels/table": set(),
    "kernels/device/portable": {"triton"},
    "kernels/device/sm90": {"triton", "kernels.device.portable"},
    "kernels/device/sm100": {"triton", "kernels.device.portable"},
    "aot": {"kernels.table", "triton", "jinja2", "elftools"},
    "build": {"aot", "kernels.table", "cffi", "pebble", "tqdm", "elftools"},
    "build/tune": {"build", "aot", "kernels.table", "bench.measure", "bench.suites", "libgemm", "torch", "numpy"},
    "bench/suites": set(),
    "bench/measure": {
        "bench.suites",
        "deep_gemm",
        "flashinfer",
        "libgemm",
        "torch",
        "transformers",
        "triton",
        "triton_kernels",
    },
    "bench/report": {"bench.suites", "kernels.table", "matplotlib"},
    "bench": {"bench.measure", "bench.suites", "bench.report", "libgemm", "torch"},
    "runtime/libgemm": {"libgemm", "cffi", "_cffi_backend"},
    "runtime/libgemm/frameworks/torch": {"libgemm", "torch"},
}
# room, package -> the only files of it that may import that.
ONLY = {
    ("aot", "triton"): {"compile.py", "toolchain.py"},
    ("aot", "jinja2"): {"render.py"},
    ("build/tune", "numpy"): {"fit.py", "record.py", "sharpen.py", "weights.py"},
    ("bench/measure", "deep_gemm"): {"peer_deep_gemm.py"},
    ("bench/measure", "flashinfer"): {"flashinfer_layers.py"},
    ("bench/measure", "transformers"): {"experts.py"},
    ("bench/measure", "triton"): {"newer_triton.py"},
    ("bench/measure", "triton_kernels"): {"peer_triton_kernels.py"},
}
FILES = sorted({path for top in ROOMS for path in (ROOT / top).rglob("*.py")})


def room_of(path: Path) -> str:
    """The innermost room."""
    return max((room for room in ROOMS if path.is_relative_to(ROOT / room)), key=len)


def imports(path: Path) -> set[str]:
    """What a file imports, but for the standard library: "kernels.table.spec"."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")  # a relative one stays as it is written: no room has any
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] not in sys.stdlib_module_names}


def outside(names: set[str], room: str) -> set[str]:
    """Those a file of this room may not import. `from a import b` stands as a and as a.b, of which one must be allowed
    where b is a room, and a otherwise."""
    own = room.removeprefix("runtime/").replace("/", ".")
    allowed = ROOMS[room] | {own}

    def is_allowed(name: str) -> bool:
        return any(name == room or name.startswith(f"{room}.") for room in allowed)

    return {
        name for name in names
        if not is_allowed(name) and not any(is_allowed(more) for more in names if more.startswith(f"{name}."))
    }  # fmt: skip


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_what_its_room_may(path):
    room, found = room_of(path), imports(path)
    assert not outside(found, room), f"{path} imports {outside(found, room)}"
    for (place, package), files in ONLY.items():
        if place == room and package in {name.split(".")[0] for name in found}:
            assert path.name in files, f"{path} imports {package}; only {files} may"


def test_pytest_looks_into_every_room_of_tests(pytestconfig):
    """Its defaults pass over folders of some names, such as build, without a word."""
    passed_over = pytestconfig.getini("norecursedirs")
    rooms = {path.parent.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")}
    assert len(rooms) > 6
    assert [room for room in rooms for part in room.parts for bad in passed_over if fnmatch(part, bad)] == []


def test_the_rules_are_about_rooms_that_are_there_and_refuse_what_they_should():
    assert all(list((ROOT / room).glob("*.py")) for room in ROOMS)
    assert outside({"triton", "kernels.table.spec", "kernels.device.sm90"}, "aot") == {"kernels.device.sm90"}
    assert outside({"kernels", "kernels.device"}, "build") == {"kernels", "kernels.device"}
    assert outside({"torch"}, "kernels/table") == outside({"torch"}, "build") == {"torch"}
    assert outside({"build.tune.fit", "build.tune"}, "build") == set()  # the same room, one below


def test_bootstrap_runs_on_the_standard_library_alone():
    assert imports(ROOT / "build" / "bootstrap.py") == set()


def test_nobody_imports_the_runtime_by_its_folder():
    for path in ROOT.rglob("*.py"):
        if not {".venv", ".cache"} & set(path.relative_to(ROOT).parts):
            assert not any(name.split(".")[0] == "runtime" for name in imports(path)), path


def test_a_relative_import_is_refused(tmp_path):
    for text in ("from . import rows", "from .rows import group", "from ..bench import run"):
        (tmp_path / "file.py").write_text(text + "\n")
        assert all(outside(imports(tmp_path / "file.py"), room) for room in ROOMS), text
