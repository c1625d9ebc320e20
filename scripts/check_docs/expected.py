"""Compares what a command printed with what the page shows."""

import re

NUMBER = r"[-+]?(?:\d[\d,]*)?\.?\d+(?:[eE][-+]?\d+)?"
UNIT_OF_TIME = r"(?<=N )(?:ns|us|µs|ms|s|min)\b"
UNIT_OF_SIZE = r"(?<=N )(?:B|kB|MB|GB|KiB|MiB|GiB)\b"


def squeeze(line):
    return " ".join(line.split())


def free_numbers(line):
    """The line with N for every number and one unit for all of a kind, since figures differ from run to run."""
    line = re.sub(r"(?<![\w.])" + NUMBER + r"(?=\b|x\b)", "N", squeeze(line))
    return re.sub(UNIT_OF_SIZE, "B", re.sub(UNIT_OF_TIME, "s", line))


def without_mark(line):
    """A row of `compare` without its * or ?: whether others took the cores meanwhile says nothing about the page."""
    return re.sub(r"^(single|dp|ddp)[*?](?= )", r"\1", line)


def line_pattern(line):
    """A regular expression for a line of the page. N is a number, or what free_numbers made of one."""
    parts = []
    for piece in re.split(r"(\.\.\.|\bN\b)", squeeze(line)):
        parts.append(".*" if piece == "..." else f"(?:{NUMBER}|N)" if piece == "N" else re.escape(piece))
    return re.compile("".join(parts))


def split_at_gaps(lines):
    """The groups of lines between lines "..."; the first and the last are empty where the page begins or ends so."""
    groups = [[]]
    for line in lines:
        if line == "...":
            groups.append([])
        else:
            groups[-1].append(line)
    return groups


def num_matching(group, printed, at):
    """How many lines of a group, from its first on, are those printed from `at` on."""
    count = 0
    for line, found in zip(group, printed[at:]):
        if not line_pattern(line).fullmatch(found):
            break
        count += 1
    return count


def find_difference(expected, printed, is_exact):
    """None where they agree, else one line that says what was not found."""
    if not is_exact:
        expected = [line if line.strip() == "..." else free_numbers(line) for line in expected]
        printed = [free_numbers(line) for line in printed]
    groups = split_at_gaps([squeeze(line) for line in expected if line.strip()])
    printed = [without_mark(squeeze(line)) for line in printed if line.strip()]
    at = 0
    for number, group in enumerate(groups):
        is_last = number + 1 == len(groups)
        starts = range(at, max(at, len(printed) - len(group)) + 1)
        if number == 0:
            starts = [0]  # nothing before it
        elif is_last and group:
            starts = [max(at, len(printed) - len(group))]  # nothing behind it
        counts = {start: num_matching(group, printed, start) for start in starts}
        best = max(counts, key=lambda start: (counts[start], -start))
        if counts[best] < len(group):
            missed = best + counts[best]
            there = f"found '{printed[missed]}'" if missed < len(printed) else "found no more lines"
            return f"expected '{group[counts[best]]}', {there}"
        at = best + len(group)
        if is_last and group and at < len(printed):
            return f"expected no more lines, found '{printed[at]}'"
    return None
