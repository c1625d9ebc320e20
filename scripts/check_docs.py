#!/usr/bin/env python3
"""Runs every command of every page, and compares what it prints with what the page shows.

  scripts/check_docs.py [--build DIR] [PAGE...]

  PAGE         README.md, docs/report.md, ...; default: every page at the top, in docs, tests and tutorials
  --build DIR  where the programs are (default: build/release)

A page's commands are run one after the other, by one shell in a fresh copy of the working folder with the built
programs in PATH. Every block begins in that folder.

  ```console        lines "$ COMMAND", each followed by all that it prints: "..." is any text, alone on a line any
                    lines, and N any number. Where nothing follows, output is not compared
  ```               commands, one a line; a line that ends with a backslash goes on
  ```text, ```cpp   and other languages: no commands

A comment just before a block says what cannot be run as it stands:

  <!-- not run: REASON -->                the whole block
  <!-- not run "WORDS": REASON -->        its commands that begin with WORDS
  <!-- instead of "WORDS": COMMAND -->    COMMAND is run for the command that begins with WORDS
  <!-- first: COMMAND -->                 run before the block, for what the page takes to be there

scripts/tutorial.sh is run with --fast, since the tests of the course run the programs at their default sizes.

In `code` between the blocks, subcommands and flags of lockstep, programs of the course, and files of the project, must be
there. A chapter of the book names its own number behind scripts/tutorial.sh, and what it suggests as `NN_NAME FLAG` is run
with --fast. A command may only exit with 0, so a line that shows an error ends in `; echo "exit code $?"`. Exits 1 if one failed, or printed
something else."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["*.md", "docs/*.md", "docs/book/**/*.md", "tutorials/*.md", "tutorials/*/README.md", "tutorials/*/*/README.md",
         "tests/*/README.md"]  # fmt: skip
LAUNCHERS = {"torchrun", "mpirun"}  # run where they are installed
FENCE = re.compile(r"^( *)(```+)\s*([\w+-]*)\s*$")
COMMENT = re.compile(r'<!-- *(not run|instead of|first)(?: "([^"]+)")?: (.+?) *-->', re.DOTALL)
NUMBER = r"[-+]?(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?"
FOLDERS = ("scripts/", "tests/", "docs/", "engine/", "kernels/", "simulate/", "tools/", "tutorials/", "datasets/")


# The text of a page.


@dataclass
class Block:
    line: int  # of its first line, counted from 1
    language: str
    lines: list
    comments: list  # (kind, words, text) of each comment before it


@dataclass
class Command:
    line: int
    shown: str  # on the page
    text: str  # what is run; empty: nothing
    reason: str = ""  # why nothing is run
    expected: list | None = None  # lines; None: the page shows none
    begins_block: bool = False


def read_blocks(text):
    """The fenced blocks of a page, with the comments that stand between the one before and each."""
    blocks, between, block = [], "", None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if block is None and match:
            indent, fence, language = match.groups()
            block = Block(number + 1, language, [], COMMENT.findall(between))
            between = ""
        elif block is not None and line.strip() == fence:
            blocks.append(block)
            block = None
        elif block is not None:
            block.lines.append(line.removeprefix(indent))
        else:
            between += line + "\n"
    return blocks


def read_block(block):
    """The commands of a block, as the page shows them."""
    commands = []
    for number, line in enumerate(block.lines, block.line):
        if block.language == "console":
            if line.startswith("$ "):
                commands.append(Command(number, line[2:], line[2:]))
            else:
                commands[-1].expected = (commands[-1].expected or []) + [line]
        elif commands and commands[-1].shown.endswith("\\"):
            shown = commands[-1].shown.removesuffix("\\") + " " + line.strip()
            commands[-1].shown = commands[-1].text = shown
        elif line.strip() and not line.startswith("#"):
            commands.append(Command(number, line.strip(), line.strip()))
    return commands


def read_commands(text):
    """All commands of a page, in order."""
    found = []
    for block in read_blocks(text):
        if block.language not in ("", "sh", "bash", "console"):
            continue
        commands = read_block(block)
        for kind, words, replacement in block.comments:
            if kind == "first":
                commands.insert(0, Command(block.line, replacement, replacement))
            for command in commands:
                if kind == "not run" and command.shown.startswith(words):
                    command.text, command.reason = "", " ".join(replacement.split())
                if kind == "instead of" and command.shown.startswith(words):
                    command.text, command.expected = replacement, None
        for command in commands:
            program = command.shown.split()[0]
            if program == "scripts/tutorial.sh":
                command.text = re.sub(r"(tutorial\.sh \w+)", r"\1 --fast", command.text, count=1)
            if program in LAUNCHERS and not shutil.which(program):
                command.text, command.reason = "", f"{program} is not installed"
        if commands:
            commands[0].begins_block = True
        found += commands
    return found


# The output of a command.


def squeeze(lines):
    return [" ".join(line.split()) for line in lines if line.strip()]


def is_shown(expected, printed):
    """True if a page's lines hold all that was printed. The * of a row that others disturbed does not count."""
    pattern = ""
    for line in squeeze(expected):
        words = re.sub(r"\bN\b", lambda _: NUMBER, re.escape(line).replace(r"\.\.\.", ".*"))
        pattern += r"(?:.*\n)*?" if line == "..." else words + r"\n"
    lines = [re.sub(r"^(single|dp|ddp)[*?](?= )", r"\1", line) for line in squeeze(printed)]
    return re.fullmatch(pattern, "".join(line + "\n" for line in lines)) is not None


def copy_sources(folder):
    """Copies all that belongs to the project: what git knows or does not ignore."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.split("\0"):
        if name and (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def run_commands(commands, build, folder):
    """Runs them in one shell, and yields (exit code, lines) of each as it ends."""
    home, outputs = folder / "lockstep", folder / "outputs"
    copy_sources(home)
    (home / "build").mkdir(exist_ok=True)
    (home / "build" / "release").symlink_to(build)
    outputs.mkdir()
    script = "set -o pipefail\n"
    for number, command in enumerate(commands):
        if command.begins_block:
            script += f"cd {home}\n"
        script += f"{{ {command.text}\n}} >{outputs}/{number} 2>&1\necho $?\n"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    environment |= {"PATH": f"{build}/bin:{os.environ['PATH']}", "HOME": str(folder)}
    shell = subprocess.Popen(["bash", "-c", script], env=environment, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, text=True, start_new_session=True)  # fmt: skip
    try:
        for number in range(len(commands)):
            code = shell.stdout.readline().strip()
            yield code, (outputs / str(number)).read_text(errors="replace").splitlines()
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()


# The `code` of a page between its blocks.


def code_spans(text):
    """(line, span) of each."""
    is_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_block = not is_block
        elif not is_block:
            yield from ((number, span) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", line))


def suggested_commands(page, text):
    """What a chapter suggests to run between its blocks."""
    if "docs/book/" not in str(page):
        return []
    commands = [Command(line, span, f"{span} --fast") for line, span in code_spans(text) if re.match(r"\d\d_\w+ --", span)]
    if commands:
        commands[0].begins_block = True
    return commands


def help_of(program, words):
    return subprocess.run([program, *words, "--help"], stdout=subprocess.PIPE, text=True).stdout


def problem_of_lockstep(words, program):
    if not re.search(rf"^  {words[1]} ", help_of(program, []), re.MULTILINE):
        return f"lockstep has no subcommand {words[1]}"
    path = words[1:3] if words[1] == "bench" else words[1:2]
    flags = [word for word in words if re.fullmatch(r"--[a-z][a-z-]*", word) and word != "--help"]
    known = help_of(program, path) if flags else ""
    unknown = [flag for flag in flags if not re.search(rf"(?<![\w-]){flag}(?![\w-])", known)]
    return f"lockstep {' '.join(path)} has no flag {unknown[0]}" if unknown else ""


def problem_of_number(page, words):
    """A chapter has its program's number, and runs this one."""
    own = [path.name[:2] for path in ROOT.glob("tutorials/[0-9][0-9]_*.cpp") if path.stem[3:] == Path(page).stem]
    is_chapter = own and "docs/book/" in str(page)
    return f"scripts/tutorial.sh {words[1]} runs another chapter's program" if is_chapter and words[1] != own[0] else ""


def find_problem(page, span, program):
    """The subcommand, flag, program or file that a span names and that is not there; else nothing."""
    words = span.split(" -- ")[0].split()
    if words[0] == "lockstep" and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]) and words[1][0] != "-":
        return problem_of_lockstep(words, program)
    if words[0] == "scripts/tutorial.sh" and len(words) > 1 and words[1].isdigit():
        return problem_of_number(page, words)
    if re.fullmatch(r"\d\d_[a-z_]+", words[0]):
        places = [ROOT / "tutorials" / f"{words[0]}.cpp", ROOT / "tutorials" / "labs" / words[0]]
        return "" if any(place.exists() for place in places) else f"there is no program {words[0]}"
    path = words[0].rstrip(".,:/")
    if not path.startswith(FOLDERS) or re.search(r"[<>{}$]|NN|NAME|\.\.\.", path) or any(ROOT.glob(path)):
        return ""
    return f"there is no {path}"


def check_page(page, build):
    """Prints a line for each command; returns how many failed."""
    text = (ROOT / page).read_text()
    program = build / "bin" / "lockstep"
    problems = [(line, found) for line, span in code_spans(text) if (found := find_problem(page, span, program))]
    for line, problem in problems:
        print(f"{page}:{line:<4} {problem}")
    commands = read_commands(text) + suggested_commands(page, text)
    for command in commands:
        if not command.text:
            print(f"{page}:{command.line:<4} not run  {command.shown[:80]} ({command.reason})")
    commands = [command for command in commands if command.text]
    num_failed = len(problems)
    with tempfile.TemporaryDirectory(prefix="lockstep-pages-") as folder:
        results = run_commands(commands, build, Path(folder)) if commands else []
        for command, (code, lines) in zip(commands, results):
            is_right = code == "0" and (command.expected is None or is_shown(command.expected, lines))
            print(f"{page}:{command.line:<4} {'ran' if is_right else 'FAILED':<8} {command.text}", flush=True)
            if not is_right:
                num_failed += 1
                print(f"  exit code {code}; it printed", *lines[-40:], sep="\n  | ")
    return num_failed


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__, add_help=False)
    parser.format_help = lambda: __doc__ + "\n"
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("pages", nargs="*")
    flags = parser.parse_args()
    build = flags.build.resolve()
    if not (build / "bin" / "lockstep").exists():
        sys.exit(f"check_docs.py: {build}/bin/lockstep is not there; build first, or name another folder with --build")
    pages = flags.pages or [path.relative_to(ROOT) for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    num_failed = sum(check_page(page, build) for page in pages)
    print(f"{num_failed} failed")
    sys.exit(num_failed > 0)


if __name__ == "__main__":
    main()
