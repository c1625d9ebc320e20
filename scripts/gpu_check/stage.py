"""A stage: parts that run one after the other within a time. What goes wrong in one costs its own line."""

import operator
import threading
import time
import traceback

from program import run

RELATIONS = {"<=": operator.le, ">=": operator.ge}


class Failed(Exception):
    """A part cannot go on, and says why in one line."""


class Skipped(Exception):
    """A part needs what this machine lacks."""


class Stage:
    """What parts are given. check: the whole check (main.py), which knows programs, sizes and peers."""

    def __init__(self, check, name, limit):
        self.check = check
        self.name = name
        self.limit = limit
        self._begin = time.monotonic()
        self._lock = threading.Lock()
        self._num_logs = 0

    def seconds(self):
        return time.monotonic() - self._begin

    def left(self):
        return self.limit - self.seconds()

    def line(self, name, verdict, **columns):
        self.check.table.line(self.name, name, verdict, **columns)

    def file(self, name):
        """A path among the logs; names are numbered in the order in which programs start."""
        with self._lock:
            self._num_logs += 1
            word = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]
            return self.check.logs / f"{self.name}-{self._num_logs:03}-{word}"

    def run(self, name, command, limit, environment=None, **options):
        """Runs a program within its limit and the stage's."""
        if self.left() < 1:
            raise Failed("no time of the stage was left")
        log = self.file(name).with_suffix(".log")
        return run(
            command,
            log,
            min(limit, self.left()),
            {**self.check.environment, **(environment or {})},
            **options,
        )

    def succeed(self, name, command, limit, environment=None):
        """As run(), of a program without which a part cannot go on."""
        outcome = self.run(name, command, limit, environment)
        if outcome.problem:
            raise Failed(f"{outcome.problem} ({outcome.log.name})")
        return outcome

    def passes(self, name, command, limit, environment=None):
        """A line that says whether a program succeeded. Exit code 77 says that something it needs is not here."""
        outcome = self.run(name, command, limit, environment)
        verdict = {0: "ok", 77: "skipped"}.get(outcome.code, "FAILED")
        detail = f"{outcome.seconds:.1f} s"
        if verdict != "ok":
            detail = f"{outcome.problem} ({outcome.log.name})"
        self.line(name, verdict, detail=detail, seconds=outcome.seconds)
        return outcome

    def judge(self, name, figure, relation, limit, unit="", detail=""):
        """A line with a target. In a rehearsal, whose figures mean nothing, none is missed."""
        is_met = self.check.is_emulated or RELATIONS[relation](figure, limit)
        verdict = "measured" if self.check.is_emulated else ("ok" if is_met else "MISSED")
        self.line(name, verdict, figure=figure, unit=unit, asked=f"{relation} {limit:g}", detail=detail)

    def part(self, name, function, *arguments):
        """Runs function(stage, *arguments); whatever it raises is a line."""
        if self.left() < 1:
            self.line(name, "not run", detail=f"the {self.limit:.0f} s of the stage were spent")
            return
        begin = time.monotonic()
        try:
            function(self, *arguments)
        except Skipped as reason:
            self.line(name, "skipped", detail=reason)
        except Failed as reason:
            self.line(name, "FAILED", detail=reason, seconds=time.monotonic() - begin)
        except Exception as error:  # such as a file that is not what it should be
            self.file(name).with_suffix(".traceback").write_text(traceback.format_exc())
            self.line(
                name, "FAILED", detail=f"{type(error).__name__}: {error}", seconds=time.monotonic() - begin
            )
