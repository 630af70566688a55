"""The kernels that are in dist/, from the cache of the build that made it. Holds no test."""

from pathlib import Path

from aot.artifact import Artifact
from build.cache import Cache
from build.compile_all import Limits, compile_all
from kernels.table.spec import Variant

ARTIFACTS = Path(__file__).resolve().parents[2] / ".cache" / "artifacts"


def shipped(variant: Variant) -> Artifact:
    """Compiled here where dist/ was built for another driver."""
    (artifact,) = compile_all([variant], Cache(ARTIFACTS, None), Limits(1))
    return artifact
