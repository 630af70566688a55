"""Runs test bodies in processes whose CUDA driver is the recording stand-in of tests/fakecuda. Holds no test.

One server process a session imports the package and forks for each body, so a body gets a library nobody has used yet
for the price of a fork. A body that fails, crashes or hangs fails its own test alone.
"""

import atexit
import functools
import gc
import importlib
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from built import TARGET, needs

from kernels.table.targets import DEFAULT_TARGETS

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
FAKECUDA = TESTS / "fakecuda"
ROOMS = sorted({TESTS / "support", *(path.parent for path in TESTS.glob("*/test_*.py"))})
SECONDS = 600  # after which a body counts as hanging, on a machine that is slow and busy too


@functools.cache
def scratch() -> Path:
    """A folder of this session."""
    folder = Path(tempfile.mkdtemp(prefix="libgemm-tests-"))
    owner = os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return folder


@functools.cache
def driver_folder() -> Path:
    """Where the stand-in's libcuda.so.1 is, built at the first call."""
    folder = scratch() / "driver"
    folder.mkdir()
    sources = sorted(map(str, FAKECUDA.glob("*.c")))
    command = ["cc", "-std=c11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1"), *sources, "-lpthread"], check=True)
    return folder


def environment(driver: bool = True, **words) -> dict[str, str]:
    """Variables of a process that finds this checkout's package and, unless told otherwise, the stand-in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("FAKECUDA_") and k != "LD_LIBRARY_PATH"}
    kept["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, ROOT / "runtime", TESTS, *ROOMS)))
    if driver:
        kept |= {"LD_LIBRARY_PATH": str(driver_folder()), "FAKECUDA_SM": str(TARGET)}
    return kept | {k: str(v) for k, v in words.items()}


def run(*command, driver: bool = True, folder: Path = ROOT, **words) -> subprocess.CompletedProcess:
    """A command in such a process; its output and exit status are the caller's to check."""
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=folder, env=environment(driver, **words),
        timeout=SECONDS,
    )  # fmt: skip


def python(snippet: str, driver: bool = True, **words) -> str:
    """What a Python snippet prints; the test fails when the snippet does."""
    done = run(sys.executable, "-c", snippet, driver=driver, **words)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


class Server:
    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env=environment(), cwd=ROOT,
        )  # fmt: skip
        atexit.register(self.stop)

    def stop(self) -> None:
        self.process.stdin.close()
        self.process.wait()

    def ask(self, job: dict) -> str:
        """The body's failure as text, "" when it passed."""
        pickle.dump(job, self.process.stdin)
        self.process.stdin.flush()
        return pickle.load(self.process.stdout)


@functools.cache
def server() -> Server:
    return Server()


def in_stand_in(**words):
    """Decorator: the test's body runs in a process of its own under the stand-in with these FAKECUDA_* settings.

    SM names the stand-in's GPUs; a test that names one by default built is skipped where dist/ lacks its kernels.
    """
    variables = {f"FAKECUDA_{k}": str(v) for k, v in words.items()}
    named = [int(sm) for sm in variables.get("FAKECUDA_SM", "").split(",") if sm]
    skip = needs(*(sm for sm in named if sm in DEFAULT_TARGETS))

    def wrap(function):
        @functools.wraps(function)
        def test(**arguments):
            job = {"module": Path(function.__code__.co_filename).stem, "name": function.__name__}
            failure = server().ask({**job, "arguments": arguments, "variables": variables})
            assert not failure, failure

        test.body = function
        return skip(test)

    return wrap


def outcome(job: dict) -> str:
    """Run one body, in the forked process."""
    signal.alarm(SECONDS)
    os.environ.update(job["variables"])
    try:
        getattr(importlib.import_module(job["module"]), job["name"]).body(**job["arguments"])
    except BaseException:
        return traceback.format_exc()
    return ""


def fork_and_run(job: dict) -> str:
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(read)
        text = outcome(job).encode()
        with os.fdopen(write, "wb") as pipe:
            pipe.write(text)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    _, status = os.waitpid(process, 0)
    if os.WIFSIGNALED(status):
        return f"the body was ended by {signal.Signals(os.WTERMSIG(status)).name}\n{text}"
    return text if os.WEXITSTATUS(status) == 0 else f"the body exited with {os.WEXITSTATUS(status)}\n{text}"


def read_ahead() -> None:
    """What bodies ask of the manifest, read once for all. Forks share it as long as none looks for garbage in it."""
    import calls

    calls.records()
    calls.records_by_entry()
    gc.freeze()


def serve() -> None:
    """Answer jobs from standard input until it closes. What bodies print goes to standard error."""
    read_ahead()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        with tempfile.NamedTemporaryFile(prefix="fakecuda-", suffix=".log") as log:
            job["variables"]["FAKECUDA_LOG"] = log.name
            try:
                importlib.import_module(job["module"])  # here, so that only the first body of a file pays for it
                text = fork_and_run(job)
            except Exception:
                text = traceback.format_exc()
        pickle.dump(text, answers)
        answers.flush()


if __name__ == "__main__":
    serve()
