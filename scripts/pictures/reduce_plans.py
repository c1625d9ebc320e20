"""All-reduce plans, drawn step by step from what `lockstep plan all-reduce` prints.

A cell is one chunk of a rank's buffer. Each of its stripes is one rank's value that has been added to it: four stripes
are the sum of all four ranks."""

from .kit import Drawing, picture
from .sources import all_reduce_steps

RANKS = 4
CELL, HEIGHT, GAP = 29, 24, 14  # of a cell, and between the rows of ranks


def states(steps):
    """The ranks whose values each rank's chunks hold, before the first step and after each."""
    holds = [[{rank} for _ in range(RANKS)] for rank in range(RANKS)]
    result = [holds]
    for _, transfers in steps:
        after = [[set(held) for held in rank] for rank in holds]
        for sender, receiver, kind, begin, end in transfers:
            for chunk in range(begin, end):
                after[receiver][chunk] = holds[sender][chunk] | (after[receiver][chunk] if kind == "add" else set())
        result.append(after)
        holds = after
    return result


class Frames:
    """Collects the stripes of all cells of a drawing, so that each colour is one path."""

    def __init__(self, drawing):
        self.drawing, self.stripes = drawing, [[] for _ in range(RANKS)]

    def buffer(self, x, y, chunks, width=CELL, arrived=()):
        """One rank's buffer, and frames around the chunks that have just arrived."""
        self.drawing.grid(x, y, 1, len(chunks), "plain", width, HEIGHT)
        for chunk, held in enumerate(chunks):
            for rank in held:
                stripe = (width - 6) / RANKS
                self.stripes[rank].append((x + chunk * width + 3 + rank * stripe, y + 4, stripe - 1, HEIGHT - 8))
        for chunk in arrived:
            self.drawing.parts.append(
                f'<rect x="{x + chunk * width:g}" y="{y:g}" width="{width:g}" height="{HEIGHT}" ' f'class="go"/>'
            )

    def finish(self):
        for rank, stripes in enumerate(self.stripes):
            self.drawing.bars(stripes, f"r{rank}")
        return self.drawing


def row(y, rank, gap=GAP):
    return y + rank * (HEIGHT + gap)


def moved(transfers, rank):
    """The chunks that arrive at a rank."""
    return [chunk for _, receiver, _, begin, end in transfers if receiver == rank for chunk in range(begin, end)]


def labels(drawing, x, y, gap=GAP):
    for rank in range(RANKS):
        drawing.chip(x, row(y, rank, gap) + 2, str(rank), rank, 22)


@picture
def ring():
    steps = all_reduce_steps("ring", RANKS, RANKS)
    drawing = Drawing(
        452,
        "The ring all-reduce, step by step",
        "Each rank sends one chunk to the next rank: three steps add, three steps copy.",
    )
    frames = Frames(drawing)
    for number, holds in enumerate(states(steps)):
        x, y = 52 + (number % 4) * 166, 60 + (number // 4) * 202
        transfers = steps[number - 1][1] if number else []
        title = "before" if not number else f"{number}. {'add' if transfers[0][2] == 'add' else 'copy'}"
        drawing.text(x, y - 24, title, 13, "start", weight="600")
        if number % 4 == 0:
            labels(drawing, x - 32, y)
        for rank in range(RANKS):
            frames.buffer(x, row(y, rank), holds[rank], arrived=moved(transfers, rank))
        for sender, receiver, _, begin, _ in transfers:
            centre = x + begin * CELL + CELL / 2
            if receiver > sender:
                drawing.arrow((centre, row(y, sender) + HEIGHT), (centre, row(y, receiver) - 1))
            else:  # around the ring
                drawing.arrow((centre, row(y, sender) + HEIGHT), (centre, row(y, sender) + HEIGHT + 12), head=False)
                drawing.arrow((centre, row(y, receiver) - 14), (centre, row(y, receiver) - 1))
    x, y = 46 + 3 * 166, 60 + 202
    sent = len([transfer for _, transfers in steps for transfer in transfers]) / RANKS  # chunks by each rank
    for line, words in enumerate(
        (
            "stripe: a rank's value",
            "four stripes: the sum",
            f"2 · ({RANKS} − 1) = {len(steps)} steps",
            f"each sends {sent / RANKS:g} buffers",
        )
    ):
        drawing.text(x, y + 24 + line * 24, words, 12, "start")
    return frames.finish()


def exchange(drawing, x, y, transfer, gap):
    """An arrow from the sender's chunks to the receiver's, bent around the rows between."""
    sender, receiver, _, begin, end = transfer
    centre = x + (begin + end) / 2 * CELL
    if receiver > sender:
        start, stop = (centre, row(y, sender, gap) + HEIGHT), (centre, row(y, receiver, gap) - 1)
    else:
        start, stop = (centre, row(y, sender, gap)), (centre, row(y, receiver, gap) + HEIGHT + 1)
    if abs(receiver - sender) == 1:
        drawing.arrow(start, stop)
    else:
        drawing.curve(start, (centre + 26, (start[1] + stop[1]) / 2), stop)


def exchanges(drawing, steps, titles, hosts=False):
    """Frames side by side, in which pairs of ranks exchange chunks."""
    frames = Frames(drawing)
    for number, holds in enumerate(states(steps)):
        x, y, gap = 44 + number * 130, 74, 22
        transfers = steps[number - 1][1] if number else []
        drawing.text(x + 2 * CELL, y - 40, titles[number], 13, weight="600")
        if number == 0:
            labels(drawing, x - 30, y, gap)
        if hosts:
            for host in range(2):
                drawing.box(
                    x - 5, row(y, 2 * host, gap) - 7, 4 * CELL + 10, 2 * HEIGHT + gap + 14, "", "soft", corner=6
                )
        for rank in range(RANKS):
            frames.buffer(x, row(y, rank, gap), holds[rank], arrived=moved(transfers, rank))
        for transfer in transfers:
            exchange(drawing, x, y, transfer, gap)
    return frames


@picture
def halving_doubling():
    steps = all_reduce_steps("halving-doubling", RANKS, RANKS)
    drawing = Drawing(
        282, "Halving and doubling", "Pairs exchange halves, then quarters; then the same way back: few steps."
    )
    titles = ["before", "1. halves", "2. quarters", "3. quarters", "4. halves"]
    for number, kind in ((1, "add"), (2, "add"), (3, "copy"), (4, "copy")):
        drawing.text(44 + number * 130 + 60, 50, kind, 12, kind="faint")
    return exchanges(drawing, steps, titles).finish()


@picture
def hierarchical():
    steps = all_reduce_steps("hierarchical", RANKS, RANKS, "--hosts", 2)
    crossing = (
        sum(
            end - begin
            for _, transfers in steps
            for sender, receiver, _, begin, end in transfers
            if sender // 2 != receiver // 2
        )
        / RANKS
        / RANKS
    )
    drawing = Drawing(
        286,
        "The hierarchical all-reduce on two hosts",
        f"Add inside each host first: then a rank sends only {crossing:g} of a buffer to the other host.",
    )
    titles = ["two hosts", "1. inside", "2. across", "3. across", "4. inside"]
    for number, (_, transfers) in enumerate(steps, 1):
        drawing.text(44 + number * 130 + 60, 50, transfers[0][2], 12, kind="faint")
    return exchanges(drawing, steps, titles, hosts=True).finish()


@picture
def tree():
    steps = all_reduce_steps("tree", RANKS, RANKS)
    drawing = Drawing(
        262, "The tree all-reduce", "Sums go up to the root, and the total comes down: few steps, whole buffers."
    )
    frames = Frames(drawing)
    places = {0: (48, 50), 1: (18, 120), 2: (78, 120), 3: (18, 190)}
    parents = {sender: receiver for _, transfers in steps for sender, receiver, kind, *_ in transfers if kind == "add"}
    for number, holds in enumerate(states(steps)):
        left = 6 + number * 138
        transfers = steps[number - 1][1] if number else []
        title = "before" if not number else f"{number}. {'up' if transfers[0][2] == 'add' else 'down'}"
        drawing.text(left + 66, 34, title, 13, weight="600")
        for child, parent in parents.items():
            (x0, y0), (x1, y1) = places[child], places[parent]
            ends = (left + x0 + 18, y0), (left + x1 + 18, y1 + HEIGHT + 2)
            move = [kind for sender, receiver, kind, *_ in transfers if {sender, receiver} == {child, parent}]
            if not move:
                drawing.line(*ends[0], *ends[1])
            else:
                drawing.arrow(*(ends if move == ["add"] else ends[::-1]))
        for rank, (x, y) in places.items():
            frames.buffer(left + x, y, holds[rank][:1], 36, arrived=[0] if moved(transfers, rank) else [])
            drawing.text(left + x - 4 if x < 70 else left + x + 40, y + 17, rank, 12, "end" if x < 70 else "start")
    return frames.finish()
