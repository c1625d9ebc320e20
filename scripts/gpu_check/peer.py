"""PyTorch, asked from one process (tests/bench/torch_cuda.py), whose import goes on while other things run."""

import json
import os
import selectors
import subprocess
import time

from program import end, start
from stage import Failed, Skipped


class Peer:
    """LOCKSTEP_TORCH_PYTHON names the Python that has PyTorch; default: python3."""

    def __init__(self, script, device, log):
        self._command = [os.environ.get("LOCKSTEP_TORCH_PYTHON", "python3"), script, device]
        self._log = log
        self._process = None
        self._why_not = ""
        self._buffer = b""
        self._start()

    def _start(self):
        try:
            with open(self._log, "ab") as log:
                self._process = start(
                    self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
                )
        except OSError as error:
            self._why_not = str(error)
            return
        self._has_begun = False

    def _answer(self, limit):
        """The next line that is a JSON object; others are left out."""
        deadline = time.monotonic() + limit
        with selectors.DefaultSelector() as ready:
            ready.register(self._process.stdout, selectors.EVENT_READ)
            while True:
                while b"\n" in self._buffer:
                    line, self._buffer = self._buffer.split(b"\n", 1)
                    try:
                        answer = json.loads(line)
                    except ValueError:
                        continue
                    if isinstance(answer, dict):
                        return answer
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Failed(f"PyTorch: no answer in {limit:.0f} s")
                if ready.select(left):
                    block = os.read(self._process.stdout.fileno(), 1 << 16)
                    if not block:
                        raise Failed(f"PyTorch's process ended ({self._log.name})")
                    self._buffer += block

    def _stop(self):
        end(self._process)
        self._process.stdout.close()
        try:
            self._process.stdin.close()
        except OSError:
            pass  # a question that it never read
        self._process = None
        self._buffer = b""

    def greeting(self, limit=60):
        """What PyTorch this is. Raises Skipped where there is none."""
        if self._why_not:
            raise Skipped(self._why_not)
        if self._process is None:
            self._start()
        if not self._has_begun:
            try:
                hello = self._answer(limit)
            except Failed as reason:
                self._why_not = str(reason)
                self._stop()
                raise Skipped(self._why_not) from None
            if "torch" not in hello:
                self._why_not = str(hello.get("problem"))
                self._stop()
                raise Skipped(self._why_not)
            self._hello = hello
            self._has_begun = True
        return self._hello

    def ask(self, question, limit):
        """The answer. A process that gives none is ended, and the next question gets a new one."""
        self.greeting(limit)
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._answer(limit)
        except (Failed, OSError) as error:
            self._stop()
            raise Failed(str(error)) from None
        if "problem" in answer:
            raise Failed(f"PyTorch: {answer['problem']}")
        return answer

    def close(self):
        if self._process is not None:
            self._stop()
