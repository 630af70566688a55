"""What every test may rely on: the built library, and words at the end about the GPU report in the repository."""

import json
from pathlib import Path

import pytest
from built import manifest as recorded

ROOT = Path(__file__).resolve().parent.parent


# Files of few tests that take long. A worker takes whole files (xdist's loadfile): these first, so that no core is idle
# while another runs the last of them.
LONG = (
    "test_fuzz", "test_numerics", "test_gpu_runner", "test_gpu_suite", "test_numerics_cut", "test_capi_threads",
    "test_capi_cluster",
)  # fmt: skip


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: LONG.index(item.path.stem) if item.path.stem in LONG else len(LONG))


@pytest.fixture(scope="session")
def dist() -> Path:
    """The folder `make build` filled; tests of the product need it."""
    folder = ROOT / "dist"
    assert (folder / "manifest.json").is_file(), "dist/ is empty: run `make build` (make test does)"
    return folder


@pytest.fixture(scope="session")
def manifest(dist) -> dict:
    return recorded()


def report_words(results: Path, manifest_path: Path) -> list[str]:
    """One sentence for each committed GPU report: whether it speaks of the library in dist/."""
    if not manifest_path.is_file():
        return ["no library in dist/: nothing can be said about GPU reports"]
    built = json.loads(manifest_path.read_text())["build_id"]
    reports = sorted(results.glob("gpu_*.json"))
    if not reports:
        return [f"no GPU report in {results.name}/: build {built[:16]} has not been shown to run on a GPU"]
    words = []
    for path in reports:
        report = json.loads(path.read_text())
        outcome = f"{report['passed']} passed, {report['failed']} failed on {report['device']}, {report['date']}"
        if report["build_id"] == built:
            words.append(f"GPU report {path.name} speaks of this build {built[:16]}: {outcome}")
        else:
            words.append(
                f"GPU report {path.name} is STALE: it speaks of build {report['build_id'][:16]}, "
                f"dist/ is {built[:16]}; run `make gpu-test` on a GPU machine"
            )
    return words


def unproven_words(results: Path, manifest_path: Path) -> list[str]:
    """One sentence that cannot be missed, where no committed GPU report speaks of the library in dist/."""
    if not manifest_path.is_file():
        return []
    built = json.loads(manifest_path.read_text())["build_id"]
    if any(json.loads(path.read_text())["build_id"] == built for path in results.glob("gpu_*.json")):
        return []
    return [
        f"NOT RUN: `make test` runs no fast kernel anywhere, and no GPU report speaks of build {built[:16]}: "
        "until `make gpu-test` passes on a GPU, nothing shows that its fast kernels are right"
    ]


SCRIPTS = {  # report -> what makes it, of those that `make bench` does not
    "tutorial": "tutorial", "losses": "losses", "moe_fp8": "experts_scaled", "flashinfer": "flashinfer_layers",
}  # fmt: skip


def bench_words(results: Path, manifest_path: Path) -> list[str]:
    """One sentence for each committed benchmark: whether it speaks of the library in dist/."""
    if not manifest_path.is_file():
        return []
    built = json.loads(manifest_path.read_text())["build_id"]
    words = []
    for path in sorted(results.glob("*.json")):
        found = json.loads(path.read_text())["build_id"]
        kind = path.name.split(".")[1]
        command = f"python bench/measure/{SCRIPTS[kind]}.py" if kind in SCRIPTS else "make bench"
        state = "speaks of this build" if found == built else f"is STALE (run `{command}`): it speaks of build"
        words.append(f"benchmark {path.name} {state} {found[:16]}")
    return words


def pytest_terminal_summary(terminalreporter):
    built, results = ROOT / "dist" / "manifest.json", ROOT / "tests" / "results"
    for line in report_words(results, built) + bench_words(ROOT / "bench" / "results", built):
        terminalreporter.write_line(line)
    for line in unproven_words(results, built):
        terminalreporter.write_line(line, red=True, bold=True)
