"""Language: attention's weights, and micro-batches whose gradients add up."""

from .kit import Drawing, picture
from .sources import expected, find_all


@picture
def attention():
    text = expected("attend_characters")
    block = text[text.index("weights = exp(score)") :].splitlines()
    letters = block[1].split()[:-2]
    rows = [line.split() for line in block[2 : 2 + len(letters)]]
    drawing = Drawing(
        384,
        "Attention's weights",
        "Each character takes a weighted mean of the values up to its own: here r looks for vowels.",
        "A triangle of weights: rows are the characters that look, columns those that they look at.",
    )
    left, top, cell = 92, 56, 34
    for column, letter in enumerate(letters):
        drawing.text(left + column * cell + cell / 2, top - 10, letter, 14, weight="600")
    for number, (letter, *cells) in enumerate(rows):
        y = top + number * cell
        drawing.text(left - 14, y + 22, letter, 14, weight="600")
        for column in range(len(letters)):
            x, word = left + column * cell, cells[column]
            if word == ".":
                drawing.box(x, y, cell, cell, "", "ghost", corner=0)
                continue
            drawing.box(x, y, cell, cell, "", "plain", corner=0)
            drawing.parts.append(
                f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" class="r0" '
                f'fill-opacity="{float(word):g}" stroke="none"/>'
            )
            drawing.text(x + cell / 2, y + 21, word.replace("0.", "."), 12, kind="w" if float(word) > 0.55 else "")
    last = rows[-1]
    drawing.parts.append(f'<path d="M{left} {top + 7 * cell}h{8 * cell}v{cell}h{-8 * cell}z" class="good"/>')
    drawing.text(410, 74, "a row: one character's weights; sum 1", 12, "start")
    drawing.box(410, 92, 16, 14, "", "ghost", corner=0)
    drawing.text(434, 103, "later characters: not seen", 12, "start")
    terms = [(float(weight), letter, place) for place, (weight, letter) in enumerate(zip(last[1:], letters))]
    best = sorted(terms, reverse=True)[:3]
    drawing.text(410, 220, f"{last[0]} gives most weight to", 13, "start")
    for line, (weight, letter, place) in enumerate(best):
        drawing.box(410, 234 + line * 28, 26, 22, letter, "a", 13)
        drawing.box(444, 234 + line * 28, 200 * weight, 22, "", "r0")
        drawing.text(452 + 200 * weight, 250 + line * 28, f"{weight:.2f}", 12, "start")
    return drawing


@picture
def accumulate():
    text = expected("accumulate_gradients")
    rows = find_all(r"^ +(\d) +(\d+) +(\d+) +(\d+) +(\d+) KiB", text)
    devices, micro, _, once, bytes_once = [row for row in rows if row[1] != "1"][-2]
    _, _, _, often, bytes_often = rows[-1]
    count = int(micro)
    drawing = Drawing(
        340,
        "Gradient accumulation",
        "Micro-batches add their gradients up; only the last one's backward pass all-reduces.",
    )
    for case, (name, reduces, size) in enumerate((("with no_sync", once, bytes_once), ("without", often, bytes_often))):
        y = 52 + case * 124
        drawing.text(24, y - 14, name, 13, "start", weight="600")
        x = 24
        for number in range(count):
            for kind, word in (("a", "F"), ("g", "B")):
                drawing.box(x, y, 40, 34, f"{word}{number}", kind)
                x += 42
            if reduces == str(count) or number == count - 1:
                drawing.box(x - 20, y + 40, 60, 26, "all-reduce", "g", 11)
                x += 30 if reduces == str(count) else 42
            else:
                drawing.text(x - 22, y + 54, "+=", 14, weight="600")
            x += 4
        drawing.box(x + 8, y, 56, 34, "update", "p")
        drawing.text(
            676,
            y + 88,
            f"{reduces} all-reduce{'s' if reduces != '1' else ''} a step, {size} KiB sent by each of {devices} ranks",
            12,
            "end",
        )
    drawing.legend(24, 292, [("a", "forward of a micro-batch"), ("g", "backward, gradients")])
    return drawing
