"""What a report of measurements speaks of: the build, the machine, the day. And where it is kept. Measures nothing."""

import datetime
import json
from pathlib import Path

import libgemm
import torch

from bench.measure.driver import driver

ROOT = Path(__file__).resolve().parents[2]


def head() -> dict:
    manifest = json.loads((ROOT / "dist" / "manifest.json").read_text())
    build = libgemm.info()["build_id"]
    if manifest["build_id"] != build:
        raise SystemExit(
            f"dist/manifest.json is of build {manifest['build_id']}, the library of {build}: run make build"
        )
    return {
        "build_id": build,
        "commit": manifest["commit"],
        "device": torch.cuda.get_device_name(),
        "driver": driver(),
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def path_of(about: dict, folder: Path, suffix: str = ".json") -> Path:
    return folder / f"{about['device'].replace(' ', '_')}{suffix}"


def keep(path: Path, report: str) -> None:
    """Write a report, and say where it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(report)
    print(f"wrote {path}")
