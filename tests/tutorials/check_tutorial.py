#!/usr/bin/env python3
"""Checks what a tutorial prints with --fast.

  check_tutorial.py PROGRAM [--expected FILE [--write]]

It exits 0; its first line is its question, one "Answer:" of two or three lines holds a figure, and each of two commands
or more under "Now try:" runs, too. Its output is FILE's, but for numbers that FILE marks with "~"; --write makes FILE,
of three runs.
"""

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

MAX_COLUMNS = 100
UNITS = {"ns", "us", "ms", "s", "B", "KB", "MB", "GB", "KiB", "MiB", "GiB", "MB/s", "GB/s"}
NOT_JUDGED = re.compile(r"\.\.\. not( judged.*)?$")  # a check of times while others took the cores: as good as one that holds


def fail(text, output):
    sys.exit(f"{text}\n--- printed ---\n{output}")


def run(program, flags):
    command = [program, "--fast", *([] if "--device" in flags else ["--device", "cpu"]), *flags]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(command)} exited with {done.returncode}, expected 0", done.stdout)
    return done.stdout


# The question, the answer and the commands to try.


def check_form(output):
    for line in output.splitlines():
        if len(line) > MAX_COLUMNS:
            fail(f"longer than {MAX_COLUMNS} columns: {line}", output)
    if not output.startswith("Question: "):
        fail('the first line does not begin with "Question: "', output)


def check_answer(program, output):
    check_form(output)
    answer, _, commands = output.partition("\nAnswer: ")[2].partition("\nNow try:\n")
    num_lines = sum(bool(line.strip()) for line in answer.splitlines())
    if not 2 <= num_lines <= 3 or not re.search(r"\d", answer):
        fail(f"the answer has {num_lines} lines, expected 2 or 3, and a figure", output)
    commands = re.findall(r"^  (\S.*)", commands, re.MULTILINE)
    if len(commands) < 2:
        fail(f'{len(commands)} commands under "Now try:", expected 2 or more', output)
    for command in commands:
        name, *flags = command.split()
        if Path(name).name != Path(program).name or not flags:
            fail(f'"Now try:" names another program, or no flag: {command}', output)
        check_form(run(program, flags))
        print("ran:", command)


# The expected file. Words are compared, step by step, whatever their order: ranks print when they like, and where a
# line ends follows from the width of its numbers.


def bare(word):
    return word.lstrip("(\"'`").rstrip(")\"'`.,;:")


def words_of_steps(text):
    """A Counter of words for each step. Left out: units, rows of pictures and the device line."""
    steps = [Counter()]
    lines = re.sub(r"[^ \n]*/bin/", "", text).splitlines()
    is_device = is_check = False
    joined = []
    for line in lines:  # a check goes on in lines with seven spaces
        if is_check and re.match(r" {7}\S", line):
            joined[-1] += line[6:]
            continue
        is_check = line.startswith("check:")
        joined.append(line)
    for line in joined:
        if line.startswith("── Step"):
            steps.append(Counter())
        if re.match(r"(gpu \d+)? *\|", line) or (is_device and line.startswith(" " * 6)):
            continue
        is_device = re.match(r" *(\[\d+\] )?using device:", line)
        if not is_device:
            words = [bare(word) for word in NOT_JUDGED.sub("... ok", line).split()]
            steps[-1].update("~" if word.startswith("~") else word for word in words if word and word not in UNITS)
    return steps


def check_expected(path, output):
    problems = []
    expected, printed = words_of_steps(Path(path).read_text()), words_of_steps(output)
    for number in range(max(len(expected), len(printed))):
        wanted, found = (steps[number] if number < len(steps) else Counter() for steps in (expected, printed))
        num_free, _ = wanted.pop("~", 0), found.pop("~", 0)
        problems += [f"step {number}: not printed: {word}" for word in wanted - found]
        surplus = found - wanted
        problems += [f"step {number}: not expected: {word}" for word in surplus if not re.search(r"\d", word)]
        num_numbers = sum(count for word, count in surplus.items() if re.search(r"\d", word))
        if num_numbers != num_free:
            problems.append(f"step {number}: expected {num_free} numbers that vary, found {num_numbers}")
    if problems:
        fail("\n".join(problems) + f"\nIf that is right, write {path} with --write", output)


def marked(runs):
    """The first run, with "~" before each number that may vary: that differs between the runs, or has a point, an
    exponent, or a unit of time or %."""
    steps = [words_of_steps(run) for run in runs]
    lines, step = [], 0
    for line in re.sub(r"[^ \n]*/bin/", "", runs[0]).splitlines():
        step += line.startswith("── Step")

        def mark(match):
            word = bare(match[0])
            varies = re.search(r"\d\.\d|\de[-+]?\d", word) or len({counts[step][word] for counts in steps}) > 1
            is_measured = re.match(r"\d+ (ns|us|ms|s|%)([ ,.:;)]|$)", line[match.start():])
            return ("~" if is_measured or (varies and re.search(r"\d", word)) else "") + match[0]

        lines.append(re.sub(r"[^ \t]+", mark, line))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--expected")
    parser.add_argument("--write", action="store_true")
    flags = parser.parse_args()
    if flags.write:
        Path(flags.expected).write_text(marked([run(flags.program, []) for _ in range(3)]))
        return
    output = run(flags.program, [])
    if flags.expected:
        check_expected(flags.expected, output)
    check_answer(flags.program, output)


main()
