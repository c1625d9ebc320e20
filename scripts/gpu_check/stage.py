"""A stage: parts that run one after the other within a time. What goes wrong in one costs its own line."""

import itertools
import json
import os
import re
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

GUARDED = ["setpriv", "--pdeathsig", "KILL"]  # ends when what started it does


class Skipped(Exception):
    """A part needs what this machine lacks."""


@dataclass
class Outcome:
    """How a program ended. code: its exit status, or minus the signal that ended it."""

    code: int
    text: str
    log: Path
    is_late: bool

    @property
    def problem(self):
        """Why it counts as failed, as one phrase; empty if it exited with 0."""
        if self.code == 0:
            return ""
        how = f"exit code {self.code}" if self.code > 0 else f"ended by {signal.Signals(-self.code).name}"
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return f"{'still running' if self.is_late else how}: {lines[-1][:160] if lines else ''} ({self.log.name})"


def run(command, log, limit, environment=None, given=""):
    """Runs a command for at most `limit` seconds and 64 MiB of output. It ends when this script does, however that
    ends. given: its standard input."""
    begin = time.monotonic()
    words = [*GUARDED, "timeout", "-s", "KILL", f"{limit:.2f}", *GUARDED, "prlimit", "--fsize=67108864", *command]
    with open(log, "wb") as file:
        options = {"input": given.encode(), "stdout": file, "stderr": subprocess.STDOUT}
        options["env"] = {**os.environ, **(environment or {})}
        code = subprocess.run([str(word) for word in words], **options).returncode
    return Outcome(code, log.read_text(errors="replace"), log, time.monotonic() - begin >= limit)


class Stage:
    """What parts are given. check: the whole check (main.py), which knows programs, sizes and folders."""

    def __init__(self, check, name, limit):
        self.check, self.name, self.end, self._numbers = check, name, time.monotonic() + limit, itertools.count(1)

    def left(self):
        return self.end - time.monotonic()

    def line(self, name, verdict, detail="", **columns):
        detail = str(detail).replace(f"{self.check.folder}/bin/", "")
        self.check.report.line(self.name, name, verdict, detail=detail, **columns)

    def file(self, name):
        """A path among the logs, numbered in the order in which programs start."""
        return self.check.logs / f"{self.name}-{next(self._numbers):03}-{re.sub('[^A-Za-z0-9_-]', '_', name)[:60]}"

    def run(self, name, command, limit=60, environment=None, given=""):
        """Runs a program within its limit and the stage's."""
        variables = {**self.check.environment, **(environment or {})}
        limit = max(0.1, min(limit, self.left()))
        return run(command, self.file(name).with_suffix(".log"), limit, variables, given)

    def succeed(self, name, command, environment=None):
        """The text of a program without which a part cannot go on."""
        outcome = self.run(name, command, environment=environment)
        if outcome.problem:
            raise RuntimeError(outcome.problem)
        return outcome.text

    def rows(self, name, *words, environment=None):
        """The rows that a subcommand of lockstep writes with --json."""
        path = self.file(name).with_suffix(".json")
        self.succeed(name, [self.check.lockstep, *words, "--device", "cuda", "--json", path], environment)
        return json.loads(path.read_text())["rows"]

    def passes(self, name, *command, limit=60):
        """A line that says whether a program succeeded. Exit code 77 says that something it needs is not here."""
        outcome = self.run(name, command, limit)
        lacks = outcome.code == 77 or (outcome.problem and re.search("built without NCCL|no NCCL was", outcome.text))
        self.line(name, "skipped" if lacks else "FAILED" if outcome.problem else "ok", detail=outcome.problem)

    def judge(self, name, figure, relation, limit, unit="", detail=""):
        """A line with a target. In a rehearsal, whose figures mean nothing, none is missed."""
        is_met = figure <= limit if relation == "<=" else figure >= limit
        verdict = "measured" if self.check.is_emulated else "ok" if is_met else "MISSED"
        self.line(name, verdict, figure=figure, unit=unit, asked=f"{relation} {limit:g}", detail=detail)

    def part(self, name, function, *arguments):
        """Runs function(*arguments); whatever it raises is a line."""
        if self.left() < 1:
            return self.line(name, "not run", detail="the time of the stage was spent")
        try:
            function(*arguments)
        except Skipped as reason:
            self.line(name, "skipped", detail=reason)
        except Exception as error:  # also of a file that is not what it should be
            self.line(name, "FAILED", detail=f"{type(error).__name__}: {error}")

    def beside(self, parts):
        """Runs parts, each as the arguments of part(), beside each other: for what is not timed."""
        with ThreadPoolExecutor(max(2, len(os.sched_getaffinity(0)) // 2)) as pool:
            list(pool.map(lambda arguments: self.part(*arguments), parts))

    def tests(self, program, limit, environment):
        """A line for a program's tests. A GPU's error may stay with its process: after a test that fails, hangs or
        crashes, the others run in a new one."""
        done, bad, skipped, end = [], [], 0, time.monotonic() + min(limit, self.left())
        if self.check.is_emulated:
            environment = {**environment, "GTEST_TOTAL_SHARDS": "999", "GTEST_SHARD_INDEX": "0"}
        while len(bad) < 8:
            words = ["--gtest_break_on_failure", "--gtest_filter=*-" + ":".join(done + bad)]
            command = [self.check.folder / "bin" / program, *words]
            outcome = self.run(program, command, end - time.monotonic(), environment)
            if outcome.code == 77:
                return self.line(program, "skipped", detail=outcome.problem)
            begun = re.findall(r"^\[ RUN      \] (\S+)", outcome.text, re.M)
            skipped += len(re.findall(r"^\[  SKIPPED \] \S+ \(", outcome.text, re.M))
            done += begun if outcome.code == 0 else begun[:-1]
            bad += [] if outcome.code == 0 else begun[-1:] or [outcome.problem]
            if outcome.code == 0 or not begun or time.monotonic() > end:
                break
        is_whole = outcome.code == 0 and done
        detail = f"{len(done) - skipped} ok, {skipped} skipped" + ("" if is_whole else "; others did not run")
        self.line(program, "ok" if is_whole and not bad else "FAILED", detail="; ".join([detail, *bad]))
