#!/usr/bin/env python3
"""Checks what a tutorial prints with --fast.

  check_tutorial.py PROGRAM [--expected FILE [--write]] [--tries]
  check_tutorial.py PROGRAM --default

It exits 0; its first line is its question, one "Answer:" of two to four lines holds a figure, two commands or more
stand under "Now try:", and no line has more than 80 columns. --tries runs those commands, too, with --fast. --default
runs the program and the commands at their own sizes.

With --fast the output is FILE's, but for figures that FILE marks with "~" (expected.py has the rules); --write makes
FILE, of three runs, and keeps its "~~".
"""

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

import expected

MAX_COLUMNS = 80
MAX_ANSWER_LINES = 4  # of 80 columns


def fail(text, output):
    sys.exit(f"{text}\n--- printed ---\n{output}")


def run(program, flags):
    command = [program, *([] if "--device" in flags else ["--device", "cpu"]), *flags]
    start = time.monotonic()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        fail(f"{' '.join(command)} exited with {done.returncode}, expected 0", done.stdout)
    print(f"ran: {' '.join([Path(program).name, *flags])}: {time.monotonic() - start:.1f} s", flush=True)
    return done.stdout


def check_form(output):
    for line in output.splitlines():
        is_error = line.startswith("lockstep: [")  # which is one line, whatever its length
        if len(line) > MAX_COLUMNS and not is_error:
            fail(f"longer than {MAX_COLUMNS} columns: {line}", output)
    if not output.startswith("Question: "):
        fail('the first line does not begin with "Question: "', output)
    answer = output.partition("\nAnswer: ")[2].partition("\nNow try:\n")[0]
    num_lines = sum(bool(line.strip()) for line in answer.splitlines())
    if not 2 <= num_lines <= MAX_ANSWER_LINES or not re.search(r"\d", answer):
        fail(f"the answer has {num_lines} lines, expected 2 to {MAX_ANSWER_LINES}, and a figure", output)


def commands_to_try(program, output):
    """The flags of each."""
    commands = re.findall(r"^  (\S.*)", output.partition("\nNow try:\n")[2], re.MULTILINE)
    if len(commands) < 2:
        fail(f'{len(commands)} commands under "Now try:", expected 2 or more', output)
    for command in commands:
        name, *flags = command.split()
        if Path(name).name != Path(program).name or not flags:
            fail(f'"Now try:" names another program, or no flag: {command}', output)
        yield flags


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--expected")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--tries", action="store_true")
    parser.add_argument("--default", action="store_true")
    flags = parser.parse_args()
    size = [] if flags.default else ["--fast"]
    if flags.write:
        path = Path(flags.expected)
        old = path.read_text() if path.exists() else ""
        path.write_text(expected.marked([run(flags.program, size) for _ in range(3)], old))
        return
    output = run(flags.program, size)
    check_form(output)
    if flags.expected:
        problems = expected.problems(Path(flags.expected).read_text(), output)
        if problems:
            fail("\n".join(problems) + f"\nIf that is right, write {flags.expected} with --write", output)
    for command in commands_to_try(flags.program, output):
        if flags.tries or flags.default:
            check_form(run(flags.program, [*size, *command]))


main()
