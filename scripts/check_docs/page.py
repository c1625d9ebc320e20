"""Reads a page's fenced blocks: their commands, what the page shows of their output, and what its comments say."""

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"^( *)(`{3,}|~{3,})\s*([\w+-]*)\s*$")
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
DIRECTIVES = {
    "not run": re.compile(r'not run(?: "(?P<words>[^"]+)")?: (?P<text>.+)', re.DOTALL),
    "instead": re.compile(r'instead of "(?P<words>[^"]+)": (?P<text>.+)', re.DOTALL),
    "first": re.compile(r"first: (?P<text>.+)", re.DOTALL),
}
COMMAND_LANGUAGES = {"", "sh", "bash", "shell", "console"}


class PageError(Exception):
    """A page that cannot be read: "README.md:18: what is wrong, and what to write"."""


@dataclass
class Directive:
    kind: str
    text: str
    words: str = ""  # of the commands that it speaks of; empty: all
    is_used: bool = False


@dataclass
class Block:
    line: int  # of its first line, counted from 1
    language: str
    lines: list
    directives: list = field(default_factory=list)
    follows: bool = False  # nothing but empty lines since the block before


@dataclass
class Command:
    line: int
    text: str
    expected: list | None = None  # lines; None: the page shows none
    is_exact: bool = False  # numbers count
    block: Block | None = None


def read_directives(text, where):
    found = []
    for comment in COMMENT.findall(text):
        for kind, pattern in DIRECTIVES.items():
            match = pattern.fullmatch(comment.strip())
            if match:
                groups = match.groupdict()
                found.append(Directive(kind, " ".join(groups["text"].split()), groups.get("words") or ""))
                break
        else:
            if re.match(r"\s*(not run|instead|first:)", comment):
                raise PageError(f"{where}: no such comment: <!--{comment}-->; see check_docs.sh --help")
    return found


def read_blocks(name, text):
    """The fenced blocks of a page, with the directives that stand between the one before and each."""
    blocks, between, block, fence = [], [], None, ""
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if block is None and match:
            indent, fence = match.group(1), match.group(2)
            gap = "\n".join(between)
            prose = COMMENT.sub("", gap).strip()
            block = Block(number + 1, match.group(3), [], read_directives(gap, f"{name}:{number}"))
            block.follows = bool(blocks) and not prose
            # A comment about a block stands just before it, with only empty lines and comments in between.
            if block.directives and COMMENT.sub("", gap[gap.index("<!--") :]).strip():
                last = gap.rstrip().endswith("-->")
                if not last:
                    raise PageError(f"{name}:{number}: text between this block and the comment that speaks of it")
            between = []
        elif block is not None and line.strip() == fence:
            blocks.append(block)
            block = None
        elif block is not None:
            block.lines.append(line[len(indent) :] if line.startswith(indent) else line)
        else:
            between.append(line)
    if block is not None:
        raise PageError(f"{name}:{block.line - 1}: this block does not end")
    return blocks


def join_lines(lines, first_line):
    """(line number, text) of each command: lines that end with a backslash go on."""
    commands, begin = [], None
    for number, line in enumerate(lines, first_line):
        if begin is None:
            begin, text = number, ""
        text += line.rstrip("\\").strip() + " " if line.endswith("\\") else line.strip()
        if not line.endswith("\\"):
            if text and not text.startswith("#"):
                commands.append((begin, text))
            begin = None
    return commands


def console_commands(name, block):
    """The commands of a ```console block with all that they print."""
    commands = []
    for number, line in enumerate(block.lines, block.line):
        if line.startswith("$ "):
            commands.append(Command(number, line[2:], None, True, block))
        elif not commands:
            raise PageError(f"{name}:{number}: a console block begins with '$ COMMAND', found '{line}'")
        elif line.startswith("> ") and commands[-1].expected is None:
            commands[-1].text += "\n" + line[2:]
        else:
            commands[-1].expected = (commands[-1].expected or []) + [line]
    return commands


def read_commands(name, text, is_word):
    """All commands of a page, in order. is_word(word): whether it begins a command."""
    commands, before = [], None
    for block in read_blocks(name, text):
        if block.language not in COMMAND_LANGUAGES:
            before = None
            continue
        if block.language == "console":
            found = console_commands(name, block)
        else:
            lines = join_lines(block.lines, block.line)
            found = [Command(number, line, None, False, block) for number, line in lines]
            is_shell = block.language or all(is_word(first_word(command.text)) for command in found)
            if not is_shell and before is not None and block.follows and not block.directives:
                before.expected = block.lines
                before = None
                continue
            if not is_shell and not any(d.kind == "not run" and not d.words for d in block.directives):
                raise PageError(
                    f"{name}:{block.line - 1}: this block is neither commands nor what they print; "
                    "begin it with ```text, or put <!-- not run: REASON --> before it"
                )
            if not is_shell:
                found = found[:1]
        commands += found
        before = found[-1] if found and block.language != "console" else None
    return commands


def first_word(command):
    """The program of a command, behind the variables that are set for it."""
    for word in re.sub(r"\$\([^)]*\)", "x", command).split():
        if not re.match(r"^\w+=", word):
            return word
    return "export"
