"""The files tutorials/expected/*.txt, and what they say about the output of a program.

Words are compared step by step, rank by rank. Where a line ends doesn't matter: that follows from the width of its
numbers. A figure marked with "~" may differ, since it is measured, or rounded differently on another machine. But:

  - it keeps its sign, and a ratio (1.1x, 1.1 times) stays on its side of 1. Figures that are 0, or ratios that are 1,
    may go either way.
  - in a table, two figures of a column that differ by more than a quarter keep their order. A table is made of lines
    next to each other that have the same number of figures with "~" and are set in columns (two spaces). A quarter,
    since acted times may be a tenth off, one up and the other down: 1.1 * 1.1 = 1.21.

"~~" releases a figure from order and sides, for what is only rounding or noise: 3e-08 beside 7e-09, the milliseconds
of two ways that take equally long. A sign stays even then. Where a check of the program was "not judged", since others
took the cores, no order and no ratio is judged either.
"""

import re
from collections import Counter

SCALES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10,
          "MiB": 2**20, "GiB": 2**30, "MB/s": 1e6, "GB/s": 1e9}
CLEARLY = 1.25  # the larger of two figures that must keep their order, over the smaller
NOT_JUDGED = re.compile(r"\.\.\. not( judged.*)?$")  # a check of times while others took the cores: as good as one that holds
NUMBER = re.compile(r"[-+]?\d+(\.\d+)?(e[-+]?\d+)?")


class Word:
    """One word of an output, with the word behind it, which may be its unit."""

    def __init__(self, text, following, line, place):
        self.text = text.lstrip("~")
        self.mark = text[:len(text) - len(self.text)]
        self.following = following
        self.line = line    # its number
        self.place = place  # in which word of the line

    def has_digit(self):
        return re.search(r"\d", self.text) is not None

    def value(self):
        """In the unit's base; None: not a number."""
        number = NUMBER.search(self.text)
        if not number:
            return None
        behind = self.text[number.end():] or self.following
        return float(number[0]) * SCALES.get(behind, 1)

    def is_ratio(self):
        return re.fullmatch(r"[\d.]+x", self.text) is not None or \
            (re.fullmatch(r"[\d.]+", self.text) is not None and self.following == "times")


def bare(word):
    return word.lstrip("(\"'`").rstrip(")\"'`.,;:")


def lines_of_steps(text):
    """For each step its lines, without what no rule is about: rows of pictures and the device line. The lines of a rank
    are together, since ranks print when they like."""
    steps = [[]]
    is_device = is_check = False
    for line in re.sub(r"[^ \n]*/bin/", "", text).splitlines():
        rank = re.match(r"\[(\d+)\] ", line)
        rank, words = (int(rank[1]), line[rank.end():]) if rank else (-1, line)
        if is_check and re.match(r" {7}\S", words):  # a check goes on in lines with seven spaces
            steps[-1][-1] = (steps[-1][-1][0], steps[-1][-1][1] + words[6:])
            continue
        is_check = words.startswith("check:")
        if line.startswith("── Step"):
            steps.append([])
        if re.match(r"(gpu \d+)? *\|", words) or (is_device and words.startswith(" " * 6)):
            continue
        is_device = re.match(r" *using device:", words) is not None
        if not is_device:
            steps[-1].append((rank, line))
    return [[line for _, line in sorted(step, key=lambda ranked: ranked[0])] for step in steps]


def words_of(lines):
    words = []
    for number, line in enumerate(lines):
        bares = [bare(word) for word in NOT_JUDGED.sub("... ok", line).split()]
        bares = [word for word in bares if word]
        for place, word in enumerate(bares):
            following = bares[place + 1] if place + 1 < len(bares) else ""
            if word not in SCALES:
                words.append(Word(word, following, number, place))
    return words


def check_words(wanted, found):
    """Words are the same, and as many numbers vary as may."""
    problems = []
    counts = Counter(word.text for word in wanted if not word.mark)
    num_free = sum(bool(word.mark) for word in wanted)
    printed = Counter(word.text for word in found)
    problems += [f"not printed: {word}" for word in counts - printed]
    surplus = printed - counts
    problems += [f"not expected: {word}" for word in surplus if not re.search(r"\d", word)]
    num_numbers = sum(count for word, count in surplus.items() if re.search(r"\d", word))
    if num_numbers != num_free:
        problems.append(f"expected {num_free} numbers that vary, found {num_numbers}")
    if problems:
        return problems
    for want, find in zip(wanted, found):
        if want.has_digit() != find.has_digit() or (not want.has_digit() and want.text != find.text):
            return [f"expected '{want.text}' where '{find.text}' is printed: the words are in another order"]
    return []


def check_figure(want, find, are_times_judged):
    a, b = want.value(), find.value()
    if a is None or b is None:
        return []
    if a * b < 0:
        return [f"the sign has changed: expected {want.text}, found {find.text}"]
    if want.mark == "~" and want.is_ratio() and are_times_judged and (a - 1) * (b - 1) < 0:
        return [f"a ratio is on the other side of 1: expected {want.text}, found {find.text}"]
    return []


def tables(lines, pairs):
    """The tables of a step: for each a list of rows, each with its pairs (expected, printed) of marked figures."""
    rows = {}
    for want, find in pairs:
        if want.mark:
            rows.setdefault(want.line, []).append((want, find))
    found, last = [], None
    for number, line in enumerate(lines):
        text = re.sub(r"^\[\d+\] ", "", line).strip()
        is_row = number in rows and re.search(r"\S  +\S", text) and not text.startswith("check:")
        if not is_row:
            last = None
        elif last is not None and len(rows[last]) == len(rows[number]):
            found[-1].append(rows[number])
            last = number
        else:
            found.append([rows[number]])
            last = number
    return found


def check_order(table):
    problems = []
    for column in zip(*table):
        figures = [(want, find) for want, find in column if want.mark == "~" and want.value() is not None]
        for i, (want, find) in enumerate(figures):
            for other, other_find in figures[i + 1:]:
                (more, more_find), (less, less_find) = sorted(
                    [(want, find), (other, other_find)], key=lambda pair: pair[0].value(), reverse=True)
                high, low = more.value(), less.value()
                is_clear = high - low > (1 - 1 / CLEARLY) * max(abs(high), abs(low))
                if is_clear and find.value() is not None and more_find.value() <= less_find.value():
                    problems.append(f"the order has changed: expected {more.text} above {less.text}, "
                                    f"found {more_find.text} and {less_find.text}")
    return problems


def problems(wanted_text, printed_text):
    """One line for each difference that matters; an empty list if there is none."""
    result = []
    wanted, printed = lines_of_steps(wanted_text), lines_of_steps(printed_text)
    are_times_judged = not any(NOT_JUDGED.search(line) for step in printed for line in step)
    for number in range(max(len(wanted), len(printed))):
        lines, found_lines = (steps[number] if number < len(steps) else [] for steps in (wanted, printed))
        want, find = words_of(lines), words_of(found_lines)
        in_step = check_words(want, find)
        if not in_step:
            pairs = list(zip(want, find))
            for pair in pairs:
                if pair[0].mark:
                    in_step += check_figure(*pair, are_times_judged)
            for table in tables(lines, pairs) if are_times_judged else []:
                in_step += check_order(table)
        result += [f"step {number}: {problem}" for problem in in_step]
    return result


def released_figures(old, first):
    """Step and word number of each figure that has "~~" in the old file, where its words are still those of the run."""
    released = set()
    for number, (lines, found_lines) in enumerate(zip(lines_of_steps(old), lines_of_steps(first))):
        want, find = words_of(lines), words_of(found_lines)
        is_same = [w.has_digit() or w.text for w in want] == [w.has_digit() or w.text for w in find]
        if is_same:
            released |= {(number, find[i].line, find[i].place) for i, word in enumerate(want) if word.mark == "~~"}
    return released


def varying_words(runs):
    """Step, line and place of the words that differ between the runs; all that occur unequally often where the runs have
    other words."""
    varying = set()
    for step, in_runs in enumerate(zip(*([words_of(lines) for lines in lines_of_steps(run)] for run in runs))):
        same_words = len({tuple(word.has_digit() or word.text for word in words) for words in in_runs}) == 1
        counts = [Counter(word.text for word in words) for words in in_runs]
        for number, word in enumerate(in_runs[0]):
            texts = {words[number].text for words in in_runs} if same_words else {count[word.text] for count in counts}
            if len(texts) > 1:
                varying.add((step, word.line, word.place))
    return varying


def marked(runs, old=""):
    """The first run, with "~" before each number that may vary: that differs between the runs, or has a point, an
    exponent, or a unit of time or %, or repeats a time without its unit ("517 of 1149 us"). One that is released in the
    old text has "~~", and so has a rounding error: a negative exponent."""
    varying, released = varying_words(runs), released_figures(old, runs[0])
    numbers = {(step, line): number for step, lines in enumerate(lines_of_steps(runs[0])) for number, line in enumerate(lines)}
    times = set(re.findall(r"\b(\d{3,}) (?:ns|us|ms|s)\b", runs[0]))
    lines, step = [], 0
    for line in re.sub(r"[^ \n]*/bin/", "", runs[0]).splitlines():
        step += line.startswith("── Step")
        place = -1

        def mark(match):
            nonlocal place
            word = bare(match[0])
            place += bool(word)
            where = (step, numbers.get((step, line)), place)
            varies = re.search(r"\d\.\d|\de[-+]?\d", word) or where in varying
            is_measured = word in times or re.match(r"\d+ (ns|us|ms|s|%)([ ,.:;)]|$)", line[match.start():])
            if not is_measured and not (varies and re.search(r"\d", word)):
                return match[0]
            is_released = re.search(r"\de-\d", word) or where in released
            return ("~~" if is_released else "~") + match[0]

        lines.append(re.sub(r"[^ \t]+", mark, line))
    return "\n".join(lines) + "\n"
