"""Processes as ranks: their variables, their store, and what happens when one lacks gradients, rows or luck."""

import re

from .kit import Drawing, picture
from .sources import expected, find, find_all


@picture
def ranks():
    text = expected("start_ranks")
    hosts = find_all(r"^  machine \d  (RANK.*)$", text.split("1 x 3")[0])
    world = find(r"2 x 2: WORLD_SIZE=(\d+)", text)[0]
    drawing = Drawing(
        260,
        "RANK, LOCAL_RANK and WORLD_SIZE on two hosts",
        f"RANK counts all processes, LOCAL_RANK those of one host; WORLD_SIZE is {world} everywhere.",
    )
    for host, line in enumerate(hosts):
        x = 24 + host * 334
        drawing.box(x, 40, 318, 164, "", "soft", corner=8)
        drawing.text(x + 159, 30, f"host {host}", 14, weight="600")
        for process, (rank, local) in enumerate(re.findall(r"RANK=(\d+) LOCAL_RANK=(\d+)", line)):
            left = x + 14 + process * 148
            drawing.box(left, 56, 142, 62, f"RANK={rank}\nLOCAL_RANK={local}", f"r{rank}", 13, "600", corner=6)
            drawing.arrow((left + 71, 122), (left + 71, 150))
            drawing.box(left + 26, 156, 90, 32, f"device {local}", "plain", 13)
    return drawing


@picture
def store():
    text = expected("start_ranks")
    own = find_all(r"my own copy of `changed` is (\d+); the sum over all ranks is \d+", text)
    total = find(r"the sum over all ranks is (\d+)", text)[0]
    drawing = Drawing(
        360,
        "Four processes meet at the store",
        "Rank 0 listens at one address; the others find it there, and then each other.",
    )
    places = [(66, 60), (66, 232), (254, 232), (254, 60)]
    for phase, x0 in enumerate((14, 354)):
        drawing.text(x0 + 160, 32, ("1. meet at the store", "2. talk to each other")[phase], 14, weight="600")
        for rank, (x, y) in enumerate(places):
            drawing.box(
                x0 + x - 50,
                y,
                100,
                50,
                f"rank {rank}\n{own[rank]}" if not phase else f"rank {rank}\n{total}",
                f"r{rank}",
                13,
                "600",
                corner=7,
            )
    drawing.box(93, 148, 162, 46, "store\nMASTER_ADDR:PORT", "plain", 12, "600")
    drawing.arrow((80, 112), (112, 148), head=False)
    drawing.arrow((80, 229), (110, 199))
    drawing.arrow((268, 229), (238, 199))
    drawing.arrow((268, 113), (238, 143))
    for first in range(4):
        for second in range(first + 1, 4):
            (ax, ay), (bx, by) = places[first], places[second]
            drawing.line(*edge(ax + 354, ay + 25, bx + 354, by + 25), *edge(bx + 354, by + 25, ax + 354, ay + 25), "go")
    drawing.text(354 + 160, 312, f"{' + '.join(own)} = {total}", 13)
    return drawing


def edge(x0, y0, x1, y1):
    """Where the line from one box's centre leaves that box of 100 x 50."""
    reach = min(56 / abs(x1 - x0) if x1 != x0 else 9, 29 / abs(y1 - y0) if y1 != y0 else 9)
    return x0 + (x1 - x0) * reach, y0 + (y1 - y0) * reach


@picture
def unused():
    text = expected("miss_gradients")
    left = find(r"^left\.bias +(\d+) +(\d+) +(\d+)$", text)
    right = find(r"^right\.bias +(\d+) +none +(\d+)$", text)
    drawing = Drawing(
        312,
        "A rank without a gradient",
        "Under Unused::find a missing gradient counts as 0: the average is half of the other rank's.",
    )
    values = ((left[0], right[0]), (left[1], None))
    for rank in range(2):
        y = 40 + rank * 122
        drawing.device(24, y, 412, 96, f"rank {rank}", rank)
        drawing.box(50, y + 34, 80, 32, "body", "p", 13)
        for head, name in enumerate(("left", "right")):
            used = values[rank][head] is not None
            top = y + 16 + head * 42
            drawing.arrow((134, y + 50), (192, top + 15), kind="go" if used else "slow")
            drawing.box(200, top, 80, 30, name, "p" if used else "ghost", 13)
            drawing.arrow((286, top + 15), (324, top + 15), kind="back" if used else "slow")
            drawing.box(332, top, 80, 30, values[rank][head] if used else "none", "g" if used else "ghost", 14, "600")
    drawing.text(589, 70, "average", 14, weight="600")
    for head, (name, result) in enumerate((("left", left[2]), ("right", right[1]))):
        y = 92 + head * 78
        inputs = " + ".join(values[rank][head] or "0" for rank in range(2))
        drawing.box(498, y, 182, 40, f"{name}: ({inputs}) / 2 = {result}", "g", 13)
        drawing.arrow((442, 88), (490, y + 16))
        drawing.arrow((442, 210), (490, y + 26))
    return drawing


@picture
def join():
    text = expected("lack_rows")
    rows = find_all(r"^ +(\d) +(\d) +([\d.]+) +([\d.]+)$", text)
    gradient, size = find(r"own gradient is (\d+)", text)[0], int(find(r"divided by +(\d)  by the active", text)[0])
    drawing = Drawing(
        330,
        "Join: a rank without rows",
        "A rank that has no rows left takes part with zeros, so that the others need not wait for it.",
    )
    left, cell = 110, 74
    first = sum(int(active) == size for _, active, *_ in rows)
    for rank in range(size):
        y = 54 + rank * 46
        drawing.chip(28, y + 6, f"rank {rank}", rank)
        for step, _ in enumerate(rows):
            has = rank > 0 or step < first
            drawing.box(
                left + step * cell, y, cell - 8, 32, gradient if has else "0", f"r{rank}" if has else "ghost", 14
            )
    for step, (number, *_) in enumerate(rows):
        drawing.text(left + step * cell + 33, 40, f"step {number}", 12, kind="faint")
    for line, column in enumerate((2, 3)):
        y = 202 + line * 42
        for step, row in enumerate(rows):
            drawing.box(left + step * cell, y, cell - 8, 30, f"{float(row[column]):.1f}", "g", 13)
        drawing.text(left + len(rows) * cell + 8, y + 20, ("sum / all ranks", "sum / active ranks")[line], 13, "start")
    return drawing


@picture
def checkpoint():
    text = expected("resume_training")
    cases = find_all(r"^(weights(?:, \w[\w ]*)*) {3,}([\d.]+)$", text)
    drawing = Drawing(
        300,
        "What a checkpoint must hold",
        "Only with all that the next step reads does a resumed run end with the same weights.",
    )
    parts = (("weights", "p"), ("momentum", "o"), ("place in the data", "a"))
    for number, (held, difference) in enumerate(cases):
        y = 56 + number * 66
        have = [name.strip() for name in held.split(",")]
        drawing.box(24, y, 376, 48, "", "soft", corner=6)
        for column, (name, kind) in enumerate(parts):
            inside = name in have
            drawing.box(36 + column * 120, y + 9, 112, 30, name if inside else "", kind if inside else "ghost", 12)
        drawing.arrow((408, y + 24), (458, y + 24))
        drawing.text(
            474, y + 29, f"weights differ by {difference}" if float(difference) else "the same weights", 13, "start"
        )
        (drawing.cross if float(difference) else drawing.tick)(664, y + 24)
    drawing.text(212, 40, "the file", 13, weight="600")
    drawing.text(540, 40, "after resuming", 13, weight="600")
    return drawing


@picture
def launcher():
    text = expected("launch_ranks")
    failed, code, words = find(r"\[run\] rank (\d+) failed first: exit code (\d+); its last error line: (.*)$", text)
    drawing = Drawing(
        300,
        "The launcher names the first failure",
        "Three ranks only waited for the one that failed: the launcher names that one, and ends all.",
    )
    drawing.box(200, 24, 300, 40, "lockstep run", "plain", 14, "600")
    for rank in range(4):
        x, first = 24 + rank * 168, rank == int(failed)
        drawing.arrow((350 + (rank - 1.5) * 60, 68), (x + 74, 96), head=False, kind="back" if first else "slow")
        drawing.device(x, 112, 148, 82, f"rank {rank}", rank)
        drawing.text(x + 74, 150, "fails" if first else "waits in a barrier", 12, kind="no" if first else "")
        drawing.text(x + 74, 172, f"exit code {code}" if first else "and is told", 12, kind="no" if first else "faint")
        if first:
            drawing.cross(x + 126, 146)
    drawing.text(
        350, 232, f"rank {failed} failed first: exit code {code}; its last error line: {words}", 13, weight="600"
    )
    return drawing


@picture
def own_rows():
    rows = find_all(r"^\[0\] +(\d) +(\d+) \.\.\. (\d+) +(\d+) \.\.\. (\d+)$", expected("train_processes"))
    drawing = Drawing(
        200, "The rows of each rank", "Every rank finds its rows by its number alone: nobody hands them out."
    )
    for batch in range(2):
        x = 30 + batch * 328
        drawing.text(x + 156, 36, f"batch {batch}", 14, weight="600")
        for rank, *bounds in rows:
            begin, end = bounds[2 * batch : 2 * batch + 2]
            drawing.box(x + int(rank) * 78, 50, 76, 40, f"{begin} … {end}", f"r{rank}", 12)
            drawing.text(x + int(rank) * 78 + 38, 112, f"rank {rank}", 12)
    drawing.arrow((30, 136), (664, 136))
    drawing.text(350, 154, "rows of the data", 12, kind="faint")
    return drawing
