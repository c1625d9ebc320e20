"""Buckets of gradients, and what overlaps: DDP's step on its lanes."""

import re

from .kit import Drawing, picture
from .sources import expected, find_all

KINDS = {"f": "a", "b": "g", "u": "p", "+": "g"}  # of lanes' letters: forward, backward, update, adding up


@picture
def buckets():
    text = re.sub(r"\n {8,}", " ", expected("fill_buckets"))
    found = find_all(r"^bucket (\d+): ([\w., ]+): (\d+) KiB, ready ([\d.]+) ms", text)
    drawing = Drawing(
        300,
        "Which gradient is in which bucket",
        "Backward goes from the last layer to the first, so bucket 0 is full first, and travels first.",
    )
    names = [name for _, slots, *_ in found for name in slots.split(", ")][::-1]  # first layer first
    layers = sorted({int(name.split(".")[0]) for name in names})
    left, stride, place = 34, 636 / len(layers), {}
    for number, layer in enumerate(layers):
        x = left + number * stride
        drawing.text(x + stride / 2 - 2, 62, layer, 12)
        drawing.box(x, 70, 13, 30, "b", "p", 11)
        drawing.box(x + 14, 70, 28, 30, "W", "p", 12)
        place[f"{layer}.weight"], place[f"{layer}.bias"] = (x + 14, 28), (x, 13)
    drawing.text(left, 34, "layers", 13, "start", weight="600")
    drawing.arrow((660, 30), (520, 30), kind="back")
    drawing.text(510, 34, "backward", 13, "end", "no")
    for bucket, slots, size, ready in found:
        spots = [place[name] for name in slots.split(", ")]
        begin, end = min(x for x, _ in spots), max(x + width for x, width in spots)
        for x, width in spots:
            drawing.box(x, 136, width, 26, "", "g")
            drawing.arrow((x + width / 2, 102), (x + width / 2, 131), kind="back")
        drawing.parts.append(f'<path d="M{begin - 1:g} 128V166h{end - begin + 1.5:g}V128" class="go"/>')
        for line, words in enumerate((f"bucket {bucket}", f"{size} KiB", f"{ready} ms")):
            drawing.text(
                (begin + end) / 2,
                190 + 18 * line,
                words,
                12,
                weight="600" if line == 0 else "",
                kind="" if line < 2 else "faint",
            )
    drawing.text(left, 254, "ms: when it is full, counted from the start of backward", 12, "start", "faint")
    return drawing


def lanes(text, gpu):
    """Each drawing of lanes in a text: microseconds of the whole, and a GPU's compute and communication letters."""
    found = []
    pattern = rf"\|0 us.*?(\d+)\|\n(?:.*\n)*?gpu {gpu} \|(.*)\|\n(?: +\|(.*)\|\n)?"
    for match in re.finditer(pattern, text):
        found.append((float(match[1]), match[2], match[3] or ""))
    return found


def pieces(lane):
    """Runs of equal letters: (letter, begin, end) as fractions of the lane."""
    return [(run[0][0], run.start() / len(lane), run.end() / len(lane)) for run in re.finditer(r"([^ ])\1*", lane)]


@picture
def overlap():
    text = expected("overlap_gradients")
    both = find_all(r"^gpu 0 \|(.*)\|\n +\|(.*)\|", text)[:2]
    table = find_all(r"^buckets (?:after|during) backward +(\d+) us +\d+ us +(\d+) us", text)
    drawing = Drawing(
        330,
        "All-reduce after backward, and during it",
        "Buckets that travel while backward still computes cost little: the step is shorter.",
    )
    left, width = 132, 540
    for number, (words, (compute, communication), (step, exposed)) in enumerate(
        zip(("after backward", "during backward"), both, table)
    ):
        y = 42 + number * 130
        drawing.text(left, y - 10, f"all-reduce {words}", 13, "start", weight="600")
        drawing.text(left + width, y - 10, f"step {step} µs, of it exposed {exposed} µs", 12, "end")
        drawing.text(left - 12, y + 20, "compute", 12, "end")
        drawing.text(left - 12, y + 56, "all-reduce", 12, "end")
        end = 0
        for letter, begin, stop in pieces(compute):
            name = {"f": "forward", "b": "backward", "u": "update"}[letter]
            drawing.box(
                left + begin * width, y, (stop - begin) * width, 30, name if stop - begin > 0.09 else "", KINDS[letter]
            )
            end = max(end, stop)
        for letter, begin, stop in pieces(communication):
            drawing.box(left + begin * width, y + 36, (stop - begin) * width, 30, letter, "g", 12)
        drawing.line(left + end * width, y - 4, left + end * width, y + 74, "slow")
    last = max(letter for letter in both[0][1] if letter.isdigit())
    drawing.text(left, 284, f"0 … {last}: buckets of gradients", 12, "start", "faint")
    drawing.legend(left + 200, 284, [("p", "update")])
    return drawing
