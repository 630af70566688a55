"""How far compiling is: a bar on a terminal, elsewhere a plain line every ten seconds. Decides nothing."""

import sys
import time

from tqdm import tqdm

SECONDS = 10.0  # between lines


def in_words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Lines:
    """What a log can hold of the bar; the last kernel always has its line."""

    def __init__(self, total: int, stream, clock=time.monotonic):
        self.total, self.stream, self.clock = total, stream, clock
        self.finished, self.started = 0, clock()
        self.said = self.started

    def advance(self, finished: int, failed: int) -> None:
        self.finished += finished
        now = self.clock()
        if self.finished < self.total and now - self.said < SECONDS:
            return
        self.said = now
        spent = now - self.started
        words = f"compiled {self.finished} of {self.total} kernels, {in_words(spent)}"
        if self.finished < self.total:
            # A mean over what is done: rough, for kernels differ.
            words += f", about {in_words(spent / self.finished * (self.total - self.finished))} left"
        if failed:
            words += f", {failed} failed"
        print(words, file=self.stream, flush=True)

    def close(self) -> None:
        pass


class Bar:
    def __init__(self, total: int, stream):
        self.bar = tqdm(total=total, desc="compile", unit="kernel", file=stream, mininterval=1.0)

    def advance(self, finished: int, failed: int) -> None:
        self.bar.set_postfix(failed=failed, refresh=False)
        self.bar.update(finished)

    def close(self) -> None:
        self.bar.close()


def progress(total: int, stream=None) -> Bar | Lines:
    stream = stream or sys.stderr
    return Bar(total, stream) if stream.isatty() else Lines(total, stream)
