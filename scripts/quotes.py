#!/usr/bin/env python3
"""Compares what the pages quote from programs and their outputs with what stands there today.

  scripts/quotes.py [PAGE...]           exits 1, with a line for each quote that differs or whose lines are not found
  scripts/quotes.py --write [PAGE...]   fills and renews the quotes

  PAGE  docs/book/split_batch.md, ...; default: README*.md and every page below docs

A quote is a comment and the block that follows it:

  <!-- code split_batch: "FIRST" to "LAST" -->      tutorials/NN_split_batch.cpp, whatever its number
  <!-- code engine/plan/ring.cpp: "FIRST" -->       a file of the project
  <!-- output split_batch: "FIRST" to "LAST" -->    tutorials/expected/NN.txt, without its marks "~" and "~~"
  ```cpp
  ```

The block holds the lines from the one that begins with FIRST, which must be the only one, to the next that begins with
LAST; without LAST, that one line. The indent does not count, and what all lines share of it is left out.

  <!-- questions -->    the rest of the page: what the chapters in the page's folder ask, in the order of mkdocs.yml"""

import argparse
import re
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README*.md", "docs/**/*.md"]
COMMENT = re.compile(r'<!-- *(code|output) +(\S+): *"(.+?)"(?: +to +"(.+?)")? *-->')
MEANT = re.compile(r"<!-- *(code|output)\b")
FENCE = re.compile(r"(```+|~~~+)")
QUESTIONS = "<!-- questions -->\n"
ANSWERS = ("Answers", "答案")  # folded, too, below exercises


class Lost(Exception):
    """A quote that cannot be made; the text says why, and what to do."""


def source_of(root, kind, name):
    """The file that a comment names."""
    if kind == "code" and "/" in name:
        paths = [root / name]
    else:
        programs = [path for path in root.glob("tutorials/[0-9][0-9]_*.cpp") if path.stem[3:] == name]
        paths = programs if kind == "code" else [root / "tutorials" / "expected" / f"{path.name[:2]}.txt" for path in programs]
    if not paths:
        raise Lost(f'no program of the course is named "{name}": correct the name')
    if not paths[0].is_file():
        raise Lost(f"there is no {paths[0].relative_to(root)}: correct the name")
    return paths[0]


def lines_of(kind, path):
    text = path.read_text()
    if kind == "output":
        text = re.sub(r"(?<!\S)~~?(?=\S)", "", text)
    return [line.rstrip() for line in text.splitlines()]


def quote(root, kind, name, first, last):
    """The quoted lines, and the path of their file."""
    path = source_of(root, kind, name)
    place, lines = path.relative_to(root), lines_of(kind, path)
    begins = [number for number, line in enumerate(lines) if line.lstrip().startswith(first)]
    if not begins:
        raise Lost(f'no line of {place} begins with "{first}": name the first line as it stands there now')
    if len(begins) > 1:
        where = ", ".join(str(number + 1) for number in begins[:4])
        raise Lost(f'lines {where} of {place} begin with "{first}": add words until one does')
    begin = begins[0]
    end = next((n for n in range(begin, len(lines)) if lines[n].lstrip().startswith(last or first)), None)
    if end is None:
        raise Lost(f'no line of {place} from line {begin + 1} on begins with "{last}": name the last line as it stands there now')
    return textwrap.dedent("\n".join(lines[begin:end + 1])).splitlines(), place


def renew_questions(root, folder, text):
    """The page with the chapters' questions in place of what follows its comment, each below a link to its chapter."""
    head, comment, _ = text.partition(QUESTIONS)
    if not comment:
        return text
    for name in re.findall(r"book/(\w+)\.md", (root / "mkdocs.yml").read_text().split("\nnav:\n")[1]):
        page = folder / f"{name}.md"
        lines = page.read_text().splitlines() if page.is_file() else []
        asked = [found for line in lines for found in re.findall(r"<summary>(.+)</summary>", line) if found not in ANSWERS]
        number = "".join(path.name[:3].replace("_", " ") for path in root.glob(f"tutorials/[0-9][0-9]_{name}.cpp"))
        if asked:
            comment += "\n".join([f"\n**[{number}{lines[0][2:]}]({name}.md)**\n", *(f"- {question}" for question in asked), ""])
    return head + comment


def renew(root, text):
    """The page with its quotes renewed, and (line, problem) of each that differed or cannot be made."""
    lines, renewed, problems, number = text.splitlines(), [], [], 0
    while number < len(lines):
        line = lines[number]
        renewed.append(line)
        number += 1
        if fence := FENCE.match(line.strip()):
            end = end_of_block(lines, number, fence[1])
            renewed += lines[number:end + 1]
            number = end + 1
        elif MEANT.match(line.strip()):
            found, problem, taken = renew_quote(root, lines, number - 1)
            renewed += found
            if problem:
                problems.append((number, problem))
            number += taken
    return "\n".join(renewed) + "\n", problems


def end_of_block(lines, number, fence):
    """The line that closes a block whose lines begin at a number; the last one of the page if none does."""
    return next((n for n in range(number, len(lines)) if lines[n].strip() == fence), len(lines) - 1)


def renew_quote(root, lines, number):
    """For the comment in line number: the lines of its block as they should be, what is wrong with it or "", and how many
    lines the block has now."""
    comment = COMMENT.fullmatch(lines[number].strip())
    fence = FENCE.match(lines[number + 1].strip()) if number + 1 < len(lines) else None
    if not comment:
        return [], 'write the comment as <!-- code NAME: "FIRST" to "LAST" -->, on one line', 0
    if not fence:
        return [], "the comment needs a block in the next line, which may be empty: ```cpp and ```", 0
    block = lines[number + 1:end_of_block(lines, number + 2, fence[1]) + 1]
    indent = lines[number + 1][:len(lines[number + 1]) - len(lines[number + 1].lstrip())]
    try:
        quoted, place = quote(root, *comment.groups())
    except Lost as lost:
        return block, str(lost), len(block)
    wanted = [block[0], *(f"{indent}{line}".rstrip() for line in quoted), block[-1]]
    problem = "" if wanted == block else f"the block differs from {place}: run scripts/quotes.py --write"
    return wanted, problem, len(block)


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__, add_help=False)
    parser.format_help = lambda: __doc__ + "\n"
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("pages", nargs="*", type=Path)
    flags = parser.parse_args()
    pages = flags.pages or [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    is_wrong = False
    for page in pages:
        if not page.is_file():
            sys.exit(f"quotes.py: there is no page {page}")
        text = page.read_text()
        renewed, problems = renew(ROOT, text)
        listed = renew_questions(ROOT, page.parent, renewed)
        if listed != renewed:
            line = renewed[:renewed.index(QUESTIONS)].count("\n") + 1
            renewed, problems = listed, [*problems, (line, "the questions are not the chapters': run scripts/quotes.py --write")]
        if flags.write and problems:
            page.write_text(renewed)
            problems = renew(ROOT, renewed)[1]
        for line, problem in problems:
            print(f"{page.resolve().relative_to(ROOT)}:{line}: {problem}")
        is_wrong |= bool(problems)
    sys.exit(is_wrong)


if __name__ == "__main__":
    main()
