"""A stage: parts that run one after the other within a time. What goes wrong in one costs its own line."""

import ctypes
import json
import os
import re
import signal
import subprocess
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

MOST_BYTES = 4 << 20  # that a program may print
MAX_FAILURES = 8  # of a test program; what it still has is then left out, in sight
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class Failed(Exception):
    """A part cannot go on, and says why in one line."""


class Skipped(Exception):
    """A part needs what this machine lacks."""


@dataclass
class Outcome:
    """How a program ended. code: its exit status, minus the signal that ended it, or None where run() ended it."""

    code: int | None
    seconds: float
    text: str
    log: Path
    why: str = ""  # run() ended it

    @property
    def problem(self):
        """Why it counts as failed, as one phrase; empty if it exited with 0."""
        if self.code == 0:
            return ""
        how = self.why or (
            f"exit code {self.code}" if self.code > 0 else f"ended by {signal.Signals(-self.code).name}"
        )
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f"{how}{': ' + lines[-1][:160] if lines else ''} ({self.log.name})"


def _die_with(parent):
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before it could be asked for
        os._exit(1)


def run(command, log, limit, environment=None, quiet=None, given=""):
    """Runs a command for at most `limit` seconds; with `quiet`, also until it has printed nothing for so long.

    It ends, with all that it started, when this script does, however that ends. given: its standard input.
    """
    begin = changed = time.monotonic()
    code, why, size, parent = None, "", 0, os.getpid()
    question = log.with_suffix(".in")
    question.write_text(given)
    with open(log, "wb") as file, open(question, "rb") as asked:
        try:
            process = subprocess.Popen(
                [str(word) for word in command],
                env={**os.environ, **(environment or {})},
                stdin=asked,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )
        except OSError as error:
            return Outcome(127, 0, str(error), log)
        while code is None and not why:
            time.sleep(0.01)
            code, now = process.poll(), time.monotonic()
            if os.fstat(file.fileno()).st_size != size:
                size, changed = os.fstat(file.fileno()).st_size, now
            if now - begin > limit or (quiet and now - changed > quiet):
                why = f"still running after {now - begin:.0f} s"
            elif size > MOST_BYTES:
                why = f"printed more than {MOST_BYTES >> 20} MiB"
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    os.truncate(log, min(log.stat().st_size, MOST_BYTES))
    text = log.read_text(errors="replace")
    return Outcome(code, time.monotonic() - begin, text, log, why if code is None else "")


class Stage:
    """What parts are given. check: the whole check (main.py), which knows programs, sizes and folders."""

    def __init__(self, check, name, limit):
        self.check, self.name, self.limit = check, name, limit
        self._begin = time.monotonic()
        self._num_logs = 0

    def seconds(self):
        return time.monotonic() - self._begin

    def left(self):
        return self.limit - self.seconds()

    def line(self, name, verdict, **columns):
        self.check.report.line(self.name, name, verdict, **columns)

    def file(self, name):
        """A path among the logs, numbered in the order in which programs start."""
        self._num_logs += 1
        return self.check.logs / f"{self.name}-{self._num_logs:03}-{re.sub('[^A-Za-z0-9_-]', '_', name)[:60]}"

    def run(self, name, command, limit, environment=None, **options):
        """Runs a program within its limit and the stage's."""
        if self.left() < 1:
            raise Failed("no time of the stage was left")
        variables = {**self.check.environment, **(environment or {})}
        return run(command, self.file(name).with_suffix(".log"), min(limit, self.left()), variables, **options)

    def succeed(self, name, command, limit, environment=None):
        """As run(), of a program without which a part cannot go on."""
        outcome = self.run(name, command, limit, environment)
        if outcome.problem:
            raise Failed(outcome.problem)
        return outcome

    def passes(self, name, command, limit, environment=None):
        """A line that says whether a program succeeded. Exit code 77 says that something it needs is not here."""
        outcome = self.run(name, command, limit, environment)
        verdict = {0: "ok", 77: "skipped"}.get(outcome.code, "FAILED")
        self.line(name, verdict, detail=outcome.problem or f"{outcome.seconds:.1f} s")
        return outcome

    def rows(self, name, words, limit=40, environment=None):
        """The rows that a subcommand of lockstep writes with --json."""
        path = self.file(name).with_suffix(".json")
        self.succeed(name, [self.check.lockstep, *words, "--device", "cuda", "--json", path], limit, environment)
        return json.loads(path.read_text())["rows"]

    def judge(self, name, figure, relation, limit, unit="", detail=""):
        """A line with a target. In a rehearsal, whose figures mean nothing, none is missed."""
        is_met = figure <= limit if relation == "<=" else figure >= limit
        verdict = "measured" if self.check.is_emulated else "ok" if is_met else "MISSED"
        self.line(name, verdict, figure=figure, unit=unit, asked=f"{relation} {limit:g}", detail=detail)

    def part(self, name, function, *arguments):
        """Runs function(stage, *arguments); whatever it raises is a line."""
        if self.left() < 1:
            self.line(name, "not run", detail=f"the {self.limit:.0f} s of the stage were spent")
            return
        try:
            function(self, *arguments)
        except Skipped as reason:
            self.line(name, "skipped", detail=reason)
        except Failed as reason:
            self.line(name, "FAILED", detail=reason)
        except Exception as error:  # such as a file that is not what it should be
            self.file(name).with_suffix(".traceback").write_text(traceback.format_exc())
            self.line(name, "FAILED", detail=f"{type(error).__name__}: {error}")

    def tests(self, group, deadline, quiet):
        """A line for a program's tests. A GPU's error may stay with its process: after a test that fails, hangs or
        crashes, the others run in a new one."""
        left = group["tests"][: self.check.sizes.tests_of_each]
        name, done, skipped, failures = f"{group['program']} ({len(left)} tests)", 0, 0, []
        program = self.check.programs.bin / group["program"]
        while left and len(failures) < MAX_FAILURES and time.monotonic() < deadline and self.left() > 1:
            command = [program, "--gtest_fail_fast", "--gtest_filter=" + ":".join(left)]
            limit = deadline - time.monotonic()
            outcome = self.run(group["program"], command, limit, group["environment"], quiet=quiet)
            if outcome.code == 77:
                return self.line(name, "skipped", detail=outcome.problem)
            begun = re.findall(r"^\[ RUN      \] (\S+)", outcome.text, re.M)
            ended = {test: how for how, test in re.findall(r"^\[ +(OK|SKIPPED) \] ([^\s,]+)", outcome.text, re.M)}
            culprit = next((test for test in begun if test not in ended), None)
            # What comes after a failing test is announced as skipped, and is still to be run.
            passed = [test for test in (begun[: begun.index(culprit)] if culprit else begun) if test in left]
            done += sum(ended[test] == "OK" for test in passed)
            skipped += sum(ended[test] == "SKIPPED" for test in passed)
            left = [test for test in left if test not in passed]
            if culprit in left:
                how = {None: "hung"}.get(outcome.code, "failed" if (outcome.code or 0) > 0 else "crashed")
                failures.append(f"{culprit} {how} ({outcome.log.name})")
                left.remove(culprit)
            elif outcome.problem or left:
                failures.append(outcome.problem or f"these did not run, such as {left[0]} ({outcome.log.name})")
                break
        detail = f"{done} ok, {skipped} skipped" + (f", {len(left)} not run" if left else "")
        verdict = "FAILED" if failures else "not run" if left else "ok"
        self.line(name, verdict, detail="; ".join([detail, *failures]))
