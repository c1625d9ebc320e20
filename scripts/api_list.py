#!/usr/bin/env python3
"""Lists the types and functions that lockstep.h declares, one line each, as docs/api.md.

  scripts/api_list.py           compares the page with the headers; exits 1 if they differ
  scripts/api_list.py --write   writes the page

A line is the name and the first sentence of the comment above it; members stand in the header."""

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
HEAD = """# The library's names

What [lockstep.h](../lockstep.h) declares, by header, in the order of its layers: each type and function with the first
sentence of its comment. The header says the rest: shapes, memory, threads, errors. All names are in the namespace
`lockstep` and the one given. [library.md](library.md) has a whole program, [words.md](words.md) PyTorch's names.

`scripts/api_list.py --write` makes this page.
"""
TYPE = re.compile(r"^(?:template <.*?> )?(class|struct|enum class|enum|union|concept) (\w+)(?!::)\b")
ALIAS = re.compile(r"^using (\w+) = ")
FUNCTION = re.compile(r"([A-Za-z_]\w*|operator\S+?) ?\(")
NOT_CALLED = {"decltype", "noexcept", "static_assert", "requires", "if"}


def headers():
    return re.findall(r'^#include "([^"]+)"', (ROOT / "lockstep.h").read_text(), re.MULTILINE)


def first_sentence(comment):
    """Of the comment's first paragraph, as one line that Markdown shows as it stands."""
    text = " ".join(line.strip() for line in comment)
    sentence = re.split(r"(?<=[.;:])\s+(?=[A-Z`])", text, maxsplit=1)[0].rstrip(" .;:")
    if re.match(r"(Shapes|Throws|Parameters|Source)\b", sentence):
        return ""
    return re.sub(r"([*_<|\[\]]|(?<=\])\()", r"\\\1", sentence)


def statements(text):
    """(namespace, code, comment) of each declaration that stands in a namespace. Code ends before its body."""
    text = re.sub(r"^#.*(?:\\\n.*)*$", "", text, flags=re.MULTILINE)
    spaces, depth, code, comment, is_used, has_body = [], 0, "", [], False, False
    for line in text.splitlines():
        stripped = line.strip()
        if depth == 0 and not code.strip():
            if not stripped or re.match(r"// -{3}", stripped):
                comment = []
                continue
            if stripped.startswith("//"):
                comment = ([] if is_used else comment) + [stripped[2:]]
                is_used = False
                continue
            is_used = True
        code_line, _, trailing = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'', '""', stripped).partition("//")
        for part in re.split(r"([{};])", code_line):
            if depth == 0 and part == "{" and re.fullmatch(r"\s*namespace [\w:]+\s*", code):
                spaces.append(re.search(r"namespace ([\w:]+)", code).group(1))
                code, comment = "", []
            elif part == "{":
                depth, has_body = depth + 1, True
            elif part == "}" and depth == 0:
                spaces.pop()
            elif part == "}":
                depth -= 1
                if depth == 0 and "(" in code and not TYPE.match(code.strip()):
                    yield "::".join(spaces), code, comment
                    code, has_body = "", False
            elif part == ";" and depth == 0:
                if code.strip() and (has_body or not TYPE.match(code.strip())):
                    yield "::".join(spaces), code, comment or ([trailing] if trailing.strip() else [])
                code, has_body = "", False
            elif depth == 0:
                code += part + " "


def name_of(code):
    code = re.sub(r"\[\[.*?\]\]|\balignas\(.*?\)", "", " ".join(code.split())).strip()
    match = TYPE.match(code)
    if match:
        return f"{match.group(1).removesuffix(' class')} {match.group(2)}"
    match = ALIAS.match(code)
    if match:
        return f"using {match.group(1)}"
    if re.match(r"(class|struct|using|friend|static_assert|extern|namespace)\b", code):
        return ""
    code = re.sub(r"^(template <.*?>|requires [^ ]+) ", "", code)
    called = [name for name in FUNCTION.findall(code) if name not in NOT_CALLED]
    return f"{called[0]}()" if called and not re.match(r"(inline )?constexpr [\w:]+ \w+ =", code) else ""


def list_names(header):
    """Lines of a header's names; overloads share the line of the first."""
    found, previous = {}, []
    for space, code, comment in statements((ROOT / header).read_text()):
        name = name_of(code)
        space = space.removeprefix("lockstep").removeprefix("::")
        if not name or re.search(r"(^|::)(detail|internal)$", space):
            continue
        key = f"`{name}`" if not space else f"`{space}`: `{name}`"
        found.setdefault(key, first_sentence(comment))
    spaces = {key.split(": ")[0] for key in found if ": " in key}
    title = f"## [{header}](../{header})"
    if len(spaces) == 1 and all(": " in key for key in found):
        title += f" · {spaces.pop()}"
        found = {key.split(": ", 1)[1]: text for key, text in found.items()}
    return [title, ""] + [f"- {key}" + (f": {text}" if text else "") for key, text in found.items()] if found else []


def page():
    sections = ["\n".join(lines) for header in headers() if (lines := list_names(header))]
    return HEAD + "\n" + "\n\n".join(sections) + "\n"


def main():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__, add_help=False)
    parser.format_help = lambda: __doc__ + "\n"
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("--write", action="store_true")
    wanted = page()
    if parser.parse_args().write:
        PAGE.write_text(wanted)
    elif not PAGE.exists() or PAGE.read_text() != wanted:
        sys.exit("docs/api.md differs from the headers; scripts/api_list.py --write renews it")


if __name__ == "__main__":
    main()
