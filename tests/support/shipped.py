"""The kernels that are in dist/, from the cache of the build that made it, and their rows. Holds no test."""

from collections.abc import Callable
from pathlib import Path

from aot.artifact import Artifact
from build.cache import Cache
from build.compile_all import Limits, compile_all
from kernels.table.spec import Variant
from kernels.table.variants import variants

ARTIFACTS = Path(__file__).resolve().parents[2] / ".cache" / "artifacts"


def shipped(variant: Variant) -> Artifact:
    """Compiled here where dist/ was built for another driver."""
    (artifact,) = compile_all([variant], Cache(ARTIFACTS, None), Limits(1))
    return artifact


def rows_of_kernels(targets: tuple[int, ...], wanted: Callable[[Variant], bool]) -> dict[str, list[Variant]]:
    """kernel -> those of its rows that are wanted."""
    found: dict[str, list[Variant]] = {}
    for variant in variants(targets):
        if wanted(variant):
            found.setdefault(variant.kernel, []).append(variant)
    return found
