"""Runs test programs on the GPU, a process each: a test that fails, hangs or crashes costs itself.

A GPU's error may stay with its process, so a program stops at its first failing test, and goes on with the
next one in a new process.
"""

import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

MAX_FAILURES = 8  # of a program; what it still has is then left out, in sight

MARKER = b"[ RUN      ]"
RUN = re.compile(r"^\[ RUN      \] (\S+)", re.MULTILINE)
ENDED = re.compile(r"^\[  (     OK|SKIPPED) \] ([^\s,]+)", re.MULTILINE)


@dataclass
class Tally:
    """What has become of a program's tests."""

    left: list
    num_ok: int = 0
    num_skipped: int = 0
    seconds: float = 0.0
    failures: list = field(default_factory=list)

    def detail(self):
        parts = [f"{self.num_ok} ok, {self.num_skipped} skipped"]
        if self.left:
            parts[0] += f", {len(self.left)} not run"
        return "; ".join(parts + self.failures)


def count(tally, outcome, is_cut_off):
    """Adds the tests that one process ran; those that are left need another one."""
    where = f"({outcome.log.name})"
    begun = RUN.findall(outcome.text)
    ended = {test: how.strip() for how, test in ENDED.findall(outcome.text) if test in begun}
    culprit = next((test for test in begun if test not in ended), None)
    if culprit:  # what came after a failing test was announced as skipped, and is still to be run
        ended = {test: ended[test] for test in begun[: begun.index(culprit)]}
    tally.num_ok += sum(how == "OK" for how in ended.values())
    tally.num_skipped += sum(how == "SKIPPED" for how in ended.values())
    tally.seconds += outcome.seconds
    tally.left = [test for test in tally.left if test not in ended]
    if outcome.code == 0:
        if tally.left:
            tally.failures.append(f"these did not run, such as {tally.left[0]} {where}")
        return False
    if culprit is None:  # before its first test or after its last
        tally.failures.append(f"{outcome.problem} {where}")
        return False
    if is_cut_off:
        tally.failures.append(f"no time was left during {culprit} {where}")
        return False
    how = "hung" if outcome.code is None else "failed" if outcome.code > 0 else "crashed"
    tally.failures.append(f"{culprit} {how} {where}")
    tally.left.remove(culprit)
    return len(tally.failures) < MAX_FAILURES


def run_tests(stage, group, deadline, seconds_each):
    """One line for a group of tests of a program (see programs.py). deadline: of time.monotonic()."""
    tests = group["tests"][: stage.check.sizes.tests_of_each]
    program = stage.check.programs.bin / group["program"]
    name = f"{group['program']} ({len(tests)} tests)"
    tally = Tally(list(tests))
    environment = group["environment"]
    goes_on = True
    while tally.left and goes_on:
        limit = min(deadline - time.monotonic(), stage.left())
        if limit < 1:
            break
        command = [program, "--gtest_fail_fast", "--gtest_filter=" + ":".join(tally.left)]
        outcome = stage.run(group["program"], command, limit, environment, each=seconds_each, marker=MARKER)
        if outcome.code == 77:
            stage.line(name, "skipped", detail=outcome.problem, seconds=outcome.seconds)
            return
        goes_on = count(tally, outcome, outcome.code is None and outcome.seconds >= limit)
    verdict = "FAILED" if tally.failures else "not run" if tally.left else "ok"
    stage.line(name, verdict, detail=tally.detail(), seconds=tally.seconds)


def run_groups(stage, groups, at_once, seconds, seconds_each):
    """Groups of tests side by side, those with most tests first: all in so many seconds, and each test."""
    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(at_once) as pool:
        ordered = sorted(groups, key=lambda group: -len(group["tests"]))
        parts = [
            pool.submit(stage.part, group["program"], run_tests, group, deadline, seconds_each)
            for group in ordered
        ]
        for part in parts:
            part.result()
