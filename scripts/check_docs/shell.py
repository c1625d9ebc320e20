"""A shell in which a page's commands are run one after the other; variables live on, each block begins at home."""

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

KEPT_BYTES = 1 << 20  # of what a command prints


@dataclass
class Outcome:
    problem: str  # empty: exited with 0
    lines: list
    seconds: float


class Shell:
    def __init__(self, home, programs, limit):
        self.home, self.limit = home, limit
        self.folder = tempfile.TemporaryDirectory(prefix="lockstep-docs-")
        self.state = Path(self.folder.name) / "state"
        self.environment = {
            **os.environ,
            "PATH": f"{programs}:{os.environ.get('PATH', '')}",
            "HOME": str(Path(self.folder.name)),
        }
        for name in [name for name in self.environment if name.startswith("LOCKSTEP_")]:
            del self.environment[name]
        self.begin_block()

    def begin_block(self):
        """Back to the folder; what was exported stays."""
        exports = self.state.read_text() if self.state.exists() else ""
        kept = [line for line in exports.splitlines(True) if not line.startswith("cd -- ")]
        self.state.write_text("".join(kept))

    def run(self, command):
        end = f'code=$?; {{ export -p; printf "cd -- %q\\n" "$PWD"; }} >"{self.state}"; exit $code'
        script = f'. "{self.state}"\n{command}\n{end}\n'
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                ["bash", "-o", "pipefail", "-c", script],
                cwd=self.home,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code = process.wait(self.limit)
                problem = "" if code == 0 else f"exit code {code}"
            except subprocess.TimeoutExpired:
                problem = f"still running after {self.limit} s"
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
            output.seek(0)
            text = output.read(KEPT_BYTES).decode(errors="replace")
        return Outcome(problem, text.splitlines(), time.monotonic() - begin)
