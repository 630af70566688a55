"""The GPU suite in several processes on one GPU: python tests/gpu/together.py [--jobs 4] [what run.py takes]

Most of its time goes into references and checks on the host: beside an H200, with 16 cores, four processes took 267 s
where one was not done after 560. Each does a part (run.py --part), and join.py makes one report of all. A part that
fails is told in the report; one that ends without a report leaves the old report as it is. SIGTERM reaches all parts,
which then write what they found. Standard library only.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.gpu import join  # noqa: E402

RUNNER = [sys.executable, "-u", str(ROOT / "tests" / "gpu" / "run.py")]


def relay(part: int, lines) -> None:
    for line in lines:
        print(f"[{part}] {line}", end="", flush=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=max(1, min(4, (os.cpu_count() or 1) // 2)))
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "results", metavar="FOLDER")
    args, words = parser.parse_known_args(argv)
    if args.jobs < 1 or any(word.split("=")[0] == "--part" for word in words):
        parser.error(f"--jobs {args.jobs}, {' '.join(words)}: 1 or more is needed, and --part is said by itself")
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder, str(part)) for part in range(1, args.jobs + 1)]
        runs = [
            subprocess.Popen(
                [*RUNNER, *words, "--part", f"{part}/{args.jobs}", "--out", str(own)], stdout=subprocess.PIPE, text=True
            )
            for part, own in enumerate(folders, 1)
        ]
        usual = signal.signal(signal.SIGTERM, lambda *_: [run.terminate() for run in runs])
        relays = [threading.Thread(target=relay, args=(part, run.stdout)) for part, run in enumerate(runs, 1)]
        for thread in relays:
            thread.start()
        for thread in relays:
            thread.join()
        left = [
            f"part {part} with status {status}"
            for part, run in enumerate(runs, 1)
            if (status := run.wait()) not in (0, 1)
        ]
        signal.signal(signal.SIGTERM, usual)
        reports = [str(path) for own in folders for path in own.glob("gpu_*.json")]
        if left or len(reports) < args.jobs:
            print(f"{', '.join(left) or 'a part'} ended without a report; nothing was written", file=sys.stderr)
            return 2
        return join.main([*reports, "--out", str(args.out)])


if __name__ == "__main__":
    sys.exit(main())
