"""The command line of scripts/check_docs.sh; its --help is that script's opening comment."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from expected import find_difference
from inline import Program, find_problems
from page import PageError, first_word, read_commands
from shell import Shell
from workspace import Workspace

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["*.md", "docs/*.md", "tutorials/*.md", "tutorials/*/README.md", "tutorials/*/*/README.md", "tests/*/README.md"]
LIMIT_SECONDS = 180
SHELL_WORDS = {"export", "cd", "source", ".", "for", "test", "echo", "mkdir", "time", "("}
# Programs that a page may name and that not every machine has.
OTHER_PROGRAMS = {"torchrun", "mpirun", "srun", "sbatch", "docker", "tensorboard", "ninja", "ctest", "cmake",
                  "clang-format-14", "wsl", "sudo", "apt", "nvidia-smi", "git"}


def usage_error(text):
    print(f"check_docs.sh: {text} (see --help)", file=sys.stderr)
    sys.exit(2)


def fail(text):
    print(f"check_docs.sh: {text}", file=sys.stderr)
    sys.exit(1)


def read_flags(words):
    """(build folder or None, whether only to list, pages)."""
    build, is_list, pages, words = None, False, [], list(words)
    while words:
        word = words.pop(0)
        if word == "--list":
            is_list = True
        elif word == "--build" and words:
            build = Path(words.pop(0)).resolve()
        elif word.startswith("-"):
            usage_error(f"unknown argument '{word}'" if word != "--build" else "--build needs a folder")
        else:
            pages.append(word)
    return build, is_list, pages


def all_pages():
    return [str(path.relative_to(ROOT)) for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


def built_programs(build):
    if build is None:
        build = ROOT / "build" / "release"
        command = f'source "{ROOT}/scripts/common.sh" && build release'
        if subprocess.run(["bash", "-c", command]).returncode != 0:
            fail("the build failed")
    if not (build / "bin" / "lockstep").exists():
        fail(f"{build}/bin/lockstep is not there; build first, or name another folder with --build")
    return build


class Check:
    """Runs pages, and remembers what was not run, and what failed."""

    def __init__(self, build):
        self.build, self.program = build, Program(build / "bin" / "lockstep")
        self.num_run, self.not_run, self.failed = 0, [], []

    def is_word(self, word):
        is_program = "/" in word and not word.startswith("/") and re.fullmatch(r"[\w./-]+", word)
        return bool(is_program or word in SHELL_WORDS | OTHER_PROGRAMS or
                    (self.build / "bin" / word).exists() or shutil.which(word))

    def why_not(self, command):
        """Why a command is not run; empty: it is."""
        spoken = [d for d in command.block.directives if command.text.startswith(d.words)]
        for directive in spoken:
            directive.is_used = True
        for directive in spoken:
            if directive.kind == "not run":
                return directive.text
        word = first_word(command.text)
        return f"{word} is not installed" if word in OTHER_PROGRAMS and not shutil.which(word) else ""

    def replacement(self, command):
        for directive in command.block.directives:
            if directive.kind == "instead" and command.text.startswith(directive.words):
                return directive.text
        return command.text

    def say(self, page, command, word, detail=""):
        text = " ".join(command.text.split())
        shown = text if len(text) <= 90 else text[:87] + "..."
        print(f"{page}:{command.line:<4} {word:<8} {shown}{detail}", flush=True)

    def complain(self, page, command, outcome, problem):
        self.failed.append(f"{page}:{command.line}: {command.text}: {problem}")
        self.say(page, command, "FAILED", f"\n  {problem}; it printed")
        for line in outcome.lines[-40:]:
            print(f"  | {line}")

    def run_command(self, page, command, shell):
        text = self.replacement(command)
        if "..." in re.sub(r"\s#.*|'[^']*'", "", text):
            self.failed.append(f"{page}:{command.line}: '...' stands in the command; put a comment "
                               '<!-- instead of "WORDS": COMMAND --> before the block')
            return self.say(page, command, "FAILED", "\n  " + self.failed[-1])
        outcome = shell.run(text)
        problem = outcome.problem
        if not problem and command.expected is not None and text == command.text:
            problem = find_difference(command.expected, outcome.lines, command.is_exact) or ""
        if problem:
            return self.complain(page, command, outcome, problem)
        self.num_run += 1
        self.say(page, command, f"{outcome.seconds:.1f} s", "" if text == command.text else f"\n  as {text}")

    def run_page(self, page, is_list):
        text = (ROOT / page).read_text()
        for problem in find_problems(page, text, self.program, ROOT):
            self.failed.append(problem)
            print(problem)
        commands = read_commands(page, text, self.is_word)
        is_list = is_list or all(self.why_not(command) for command in commands)  # nothing to be run
        workspace = None if is_list else Workspace(ROOT, self.build)
        shell = None if is_list else Shell(workspace.path, self.build / "bin", LIMIT_SECONDS)
        block = None
        for command in commands:
            reason = self.why_not(command)
            if not is_list and command.block is not block:
                block = command.block
                shell.begin_block()
                for directive in block.directives if not reason else []:
                    if directive.kind == "first":
                        outcome = shell.run(directive.text)
                        if outcome.problem:
                            self.complain(page, command, outcome, f"first: {directive.text}: {outcome.problem}")
            if reason:
                self.not_run.append((f"{page}:{command.line}", command.text, reason))
                self.say(page, command, "not run", f" ({reason})")
            elif is_list:
                self.say(page, command, "run")
            else:
                self.run_command(page, command, shell)
        self.complain_of_idle(page, commands)
        if workspace is not None:
            workspace.close()

    def complain_of_idle(self, page, commands):
        """A comment that speaks of no command is left from one that was changed."""
        seen = {id(d): d for command in commands for d in command.block.directives}
        for directive in seen.values():
            if not directive.is_used and directive.kind in {"not run", "instead"} and directive.words:
                self.failed.append(f'{page}: a comment speaks of "{directive.words}", which no command begins with')
                print(self.failed[-1])

    def summarise(self, is_list):
        if self.not_run:
            print(f"\nnot run, {len(self.not_run)}:")
            for where, text, reason in self.not_run:
                print(f"  {where}  {' '.join(text.split())[:70]}: {reason}")
        for line in self.failed:
            print(f"failed: {line}")
        if not is_list:
            print(f"{self.num_run} commands run, {len(self.not_run)} not run, {len(self.failed)} failed")


def main():
    build, is_list, pages = read_flags(sys.argv[1:])
    for page in pages:
        if not (ROOT / page).is_file():
            usage_error(f"there is no page '{page}'")
    check = Check(build if is_list and build else built_programs(build))
    for page in pages or all_pages():
        try:
            check.run_page(page, is_list)
        except PageError as error:
            check.failed.append(str(error))
            print(f"failed: {error}")
    check.summarise(is_list)
    sys.exit(1 if check.failed else 0)


main()
