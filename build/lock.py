"""One build at a time in a folder: a lock file that says who holds it. The system drops it when its holder ends."""

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path


@contextlib.contextmanager
def only_build(path: Path) -> Iterator[None]:
    """Wait for the build that holds the lock at `path`, if there is one, then hold it. Ctrl-C ends the wait."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            print(f"waiting for the build that holds {path}: {holder}", file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        # The file stays: were it removed, one who waits for it and one who makes a new one would both hold a lock.
        file.truncate(0)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        file.write(f"process {os.getpid()} ({' '.join(sys.orig_argv)}), since {since}\n")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
