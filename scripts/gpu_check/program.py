"""Runs programs that may do anything: each has a time limit and a log of bounded size."""

import ctypes
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

KEPT_BYTES = 4 << 20  # of what a program prints
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@dataclass
class Outcome:
    """How a program ended. code: its exit status, minus the signal that ended it, or None at its time limit."""

    code: int | None
    seconds: float
    text: str
    log: Path

    @property
    def problem(self):
        """Why it counts as failed, as one phrase; empty if it exited with 0."""
        if self.code == 0:
            return ""
        if self.code is None:
            return f"still running after {self.seconds:.0f} s"
        if self.code < 0:
            return f"ended by {signal.Signals(-self.code).name}" + self._last_words()
        return f"exit code {self.code}" + self._last_words()

    def _last_words(self):
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f": {lines[-1][:160]}" if lines else ""


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(command, environment=None, **options):
    """A process in a session of its own, which ends when this script does, however that ends."""
    return subprocess.Popen(
        [str(word) for word in command],
        env={**os.environ, **(environment or {})},
        start_new_session=True,
        preexec_fn=_die_with_parent,
        **options,
    )


def end(process):
    """Ends a process of start() and what it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(command, log, limit, environment=None, each=None, marker=b""):
    """Runs a command for at most `limit` seconds; with `each`, also for at most that long after a `marker`."""
    begin = marked = time.monotonic()
    try:
        process = start(
            command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        log.write_text(f"{error}\n")
        return Outcome(127, 0, str(error), log)
    printed = bytearray()
    os.set_blocking(process.stdout.fileno(), False)
    with open(log, "wb") as file, selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        is_open = True
        while True:
            code = process.poll()
            end_of_time = begin + limit
            if each is not None:
                end_of_time = min(end_of_time, marked + each)
            if code is None and time.monotonic() >= end_of_time:
                break
            if not is_open:
                time.sleep(0.01)
            elif ready.select(0 if code is not None else 0.05):
                block = process.stdout.read(1 << 16)
                if block:
                    if marker and marker in block:
                        marked = time.monotonic()
                    kept = block[: KEPT_BYTES - len(printed)]
                    printed += kept
                    file.write(kept)
                    file.flush()
                    continue  # all that it printed, before its end counts
                is_open = False
            if code is not None:
                break
        seconds = time.monotonic() - begin
        end(process)
        process.stdout.close()
        if len(printed) >= KEPT_BYTES:
            file.write(b"\n... and more, which was not kept\n")
    return Outcome(code, seconds, printed.decode(errors="replace"), log)
