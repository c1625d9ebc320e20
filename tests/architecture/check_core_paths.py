"""Checks the core paths of docs/architecture.md:

  check_core_paths.py ROOT

Each row names files that exist, and states their lines within 5 %. Below each table stands how much a reader meets at
most by following the quoted #includes from the files of this table and of those before it, where each header brings
the .cpp of its name."""

import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
ROW = re.compile(r"\|([^|]+)\|([^|]+)\| *(\d+) *\|")
CLOSURE = re.compile(r"With all that they include: at most ([\d,]+) files, ([\d,]+) lines\.")


def text_of(path):
    return (ROOT / path).read_text()


def count_lines(paths):
    return sum(text_of(path).count("\n") for path in paths)


def expand(word):
    """The names behind a word with braces, as a shell expands them."""
    braces = re.search(r"\{([^{}]*)\}", word)
    if braces is None:
        return [word]
    return [name for part in braces[1].split(",") for name in expand(word[:braces.start()] + part + word[braces.end():])]


def closure(paths):
    found, waiting = set(), list(paths)
    while waiting:
        path = waiting.pop()
        if path in found or not (ROOT / path).is_file():
            continue
        found.add(path)
        waiting += INCLUDE.findall(text_of(path))
        if path.endswith(".h"):
            waiting.append(path.removesuffix(".h") + ".cpp")
    return found


def problems_of_row(part, paths, stated):
    missing = [path for path in paths if not (ROOT / path).is_file()]
    if missing:
        return [f"{part}: there is no file {path}" for path in missing]
    found = count_lines(paths)
    return [] if abs(found - stated) <= 0.05 * stated else [f"{part}: the page states {stated} lines, found {found}"]


def main():
    page = text_of("docs/architecture.md")
    section = page[page.index("\n## The core paths"):page.index("\n## Decisions")]
    problems, paths, num_closures = [], set(), 0
    for line in section.splitlines():
        if row := ROW.match(line):
            files = [name for word in row[2].replace("`", "").split() for name in expand(word)]
            problems += problems_of_row(row[1].strip(), files, int(row[3]))
            paths |= set(files)
        elif bound := CLOSURE.match(line):
            num_closures += 1
            reached = closure(paths)
            found = (len(reached), count_lines(reached))
            print(f"path {num_closures}: {len(paths)} files, which include {found[0]} files, {found[1]} lines")
            allowed = tuple(int(number.replace(",", "")) for number in bound.groups())
            if found[0] > allowed[0] or found[1] > allowed[1]:
                problems.append(f"path {num_closures}: the page allows {allowed[0]} files, {allowed[1]} lines")
    print("\n".join(problems))
    sys.exit(bool(problems) or num_closures != 3)


main()
