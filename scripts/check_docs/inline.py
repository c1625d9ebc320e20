"""What a page says in `code` between its blocks: subcommands, flags and files that must be there."""

import functools
import re
import subprocess

FOLDERS = ("scripts/", "tests/", "docs/", "engine/", "kernels/", "simulate/", "tools/", "tutorials/", "datasets/")


def code_spans(text):
    """(line number, span) of each `...` outside of fenced blocks."""
    fence = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fence = not fence
        elif not fence:
            for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", line):
                yield number, span


class Program:
    """What `lockstep --help` and the help of its subcommands list. Asked when it is needed first."""

    def __init__(self, path):
        self.path = path
        self._flags = {}

    @functools.cached_property
    def subcommands(self):
        return set(re.findall(r"^  ([a-z][a-z-]*) {2,}", self._help([]), re.MULTILINE))

    def _help(self, words):
        command = [self.path, *words, "--help"]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout

    def flags_of(self, words):
        """All flags of a subcommand; of `bench step`, which has subcommands itself, of both."""
        key = tuple(words)
        if key not in self._flags:
            self._flags[key] = set(re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", self._help(words)))
        return self._flags[key]


def problem_of_command(span, program):
    """What is wrong with `lockstep SUBCOMMAND --flags`; empty: nothing."""
    words = span.split(" -- ")[0].split()[1:]
    if not words or words[0].startswith("-") or not re.fullmatch(r"[a-z-]+", words[0]):
        return ""
    if words[0] not in program.subcommands:
        return f"lockstep has no subcommand '{words[0]}'"
    path = words[:2] if words[0] == "bench" and len(words) > 1 and not words[1].startswith("-") else words[:1]
    for word in words[1:]:
        flag = re.match(r"--[a-z][\w-]*", word)
        if flag and flag.group() not in program.flags_of(path):
            return f"lockstep {' '.join(path)} has no flag {flag.group()}"
    return ""


def problem_of_file(span, root):
    """What is wrong with a path of the project; empty: nothing."""
    path = span.split()[0].rstrip(".,:")
    if not path.startswith(FOLDERS) or re.search(r"[<>{}$]|NN|NAME|\.\.\.", path):
        return ""
    return "" if any(root.glob(path.rstrip("/"))) else f"there is no {path}"


def find_problems(page, text, program, root):
    """"README.md:12: `span`: what is wrong" of each."""
    problems = []
    for number, span in code_spans(text):
        is_command = span.startswith("lockstep ")
        problem = problem_of_command(span, program) if is_command else problem_of_file(span, root)
        if problem:
            problems.append(f"{page}:{number}: `{span}`: {problem}")
    return problems
