"""The import rules of the tree, read from the source: kernels -> aot -> build, runtime apart. Imports none of it."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# folder -> third-party packages and folders of ours that its files may import, beside the standard library
ALLOWED = {
    "kernels": {"kernels", "triton"},
    "aot": {"aot", "kernels", "triton", "jinja2", "lz4", "elftools"},
    "build": {"build", "aot", "kernels", "cffi", "pebble", "tqdm", "elftools", "numpy"},
    "runtime/libgemm": {"libgemm", "cffi", "_cffi_backend"},
}
# module -> the only files that may import it
ONLY = {
    ("aot", "triton"): {"compile.py"},
    ("aot", "jinja2"): {"render.py"},
    ("aot", "lz4"): {"pack.py"},
    ("build", "numpy"): {"fit.py"},
    ("kernels", "triton"): {
        "align.py",
        "gemm.py",
        "grouped_gemm.py",
        "gemm_descriptor.py",
        "gemm_sm90.py",
        "ring_sm90.py",
        "cluster_sm90.py",
        "output_sm90.py",
        "grouped_gemm_sm90.py",
        "grouped_sm90.py",
        "grouped_swap_sm90.py",
        "grouped_cluster_sm90.py",
        "groups_sm90.py",
        "queue_sm90.py",
        "wgmma_sm90.py",
        "grouped_mm.py",
        "tiles.py",
    },
}


def imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("." if node.level else node.module.split(".")[0])
    return names - set(sys.stdlib_module_names)


FILES = [(folder, path) for folder in ALLOWED for path in sorted((ROOT / folder).rglob("*.py"))]


@pytest.mark.parametrize(("folder", "path"), FILES, ids=lambda x: x.name if isinstance(x, Path) else x)
def test_a_file_imports_only_what_its_layer_may(folder, path):
    found = imports(path)
    assert found <= ALLOWED[folder], f"{path} imports {found - ALLOWED[folder]}"
    for (layer, module), files in ONLY.items():
        if layer == folder and module in found:
            assert path.name in files, f"{path} imports {module}; only {files} may"


def test_the_specification_is_a_leaf():
    assert imports(ROOT / "kernels" / "model.py") == set()
    assert imports(ROOT / "kernels" / "spec.py") == {"kernels"}
    assert imports(ROOT / "aot" / "artifact.py") == set()


def test_no_benchmark_imports_triton():
    for path in sorted((ROOT / "bench").rglob("*.py")):
        assert "triton" not in imports(path), path


def test_bootstrap_runs_on_the_standard_library_alone():
    assert imports(ROOT / "build" / "bootstrap.py") == set()


def test_nobody_imports_the_runtime_by_its_folder():
    for path in ROOT.rglob("*.py"):
        if not {".venv", ".cache"} & set(path.relative_to(ROOT).parts):
            assert "runtime" not in imports(path), path
