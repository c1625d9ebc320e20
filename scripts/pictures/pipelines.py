"""Models that are cut into stages: pipeline schedules, and parts placed by hand."""

from .buckets import KINDS, lanes, pieces
from .kit import Drawing, picture
from .sources import expected, find


def schedule(name):
    """The title line, each stage's slots, the bubble, and what the first stage keeps at most."""
    text = expected("fill_pipeline")
    title = find(rf"^{name}: (.*)$", text)[0]
    block = text[text.index(f"{name}: ") :].split("\n\n")[0]
    stages = [line.split()[2:] for line in block.splitlines() if line.startswith("stage")]
    return title, stages, find(r"bubble: ([\d.]+ %)", block)[0], find(r"kept at most.*: (\d+)", block)[0]


def draw_schedule(name, title, caption, kept):
    words, stages, bubble, most = schedule(name)
    drawing = Drawing(
        112 + 34 * len(stages),
        title,
        caption,
        f"{words}; slots from left to right, forward and backward passes by micro-batch. {caption}",
    )
    left, width = 92, 590 / max(len(slots) for slots in stages)
    for stage, slots in enumerate(stages):
        y = 28 + stage * 34
        drawing.chip(16, y + 3, f"stage {stage}", stage)
        for number, slot in enumerate(slots):
            x = left + number * width
            if slot == ".":
                drawing.box(x + 1, y + 1, width - 2, 24, "", "ghost")
            else:
                second = slot.endswith("b") and len(slot) > 2
                drawing.box(x, y, width, 26, slot[1:], "a" if slot[0] == "F" else "g", 12, "700" if second else "")
    y = 54 + 34 * len(stages)
    drawing.legend(left, y, [("a", "forward"), ("g", "backward"), ("ghost", f"idle: {bubble}")])
    drawing.text(684, y, kept.format(most), 12, "end")
    return drawing


@picture
def pipeline_gpipe():
    return draw_schedule(
        "gpipe",
        "The pipeline schedule gpipe",
        "All forward passes, then all backward ones: stages wait while it fills and drains.",
        "stage 0 keeps {} micro-batches",
    )


@picture
def pipeline_1f1b():
    return draw_schedule(
        "1f1b",
        "The pipeline schedule 1f1b",
        "One forward, one backward, in turn: as much idle time as gpipe, but less to keep.",
        "stage 0 keeps {} micro-batches",
    )


@picture
def pipeline_interleaved():
    return draw_schedule(
        "interleaved",
        "The pipeline schedule interleaved",
        "Each stage has two chunks of the model, a and b: shorter pieces fill the pipeline sooner.",
        "stage 0 keeps {} chunks",
    )


@picture
def placed_parts():
    text = expected("place_parts")
    drawings = [[lanes(text, gpu)[number] for gpu in range(3)] for number in range(2)]
    drawing = Drawing(
        436,
        "Three parts of one model on three devices",
        "Each part waits for the one before it; micro-batches let the parts work at once.",
    )
    for gpu in range(3):
        x = 40 + gpu * 224
        drawing.device(x, 34, 172, 60, f"gpu {gpu}", gpu)
        drawing.box(x + 36, 50, 100, 32, f"part {gpu}", "p", 13)
        if gpu:
            drawing.arrow((x - 48, 54), (x - 5, 54))
            drawing.arrow((x - 5, 80), (x - 48, 80), kind="back")
    drawing.text(238, 46, "h", 13)
    drawing.text(238, 98, "∂h", 13, kind="no")
    left, width = 92, 590
    for number, (words, three) in enumerate(
        zip(("whole batch", find(r"three parts, (\d+ micro-batches)", text)[0]), drawings)
    ):
        top = 140 + number * 126
        end = max(stop for _, compute, _ in three for _, _, stop in pieces(compute))
        drawing.text(left, top - 8, f"{words}: {steps(text)[number]} µs", 13, "start", weight="600")
        for gpu, (_, compute, _) in enumerate(three):
            y = top + gpu * 30
            drawing.chip(24, y + 2, f"gpu {gpu}", gpu)
            for letter, begin, stop in pieces(compute):
                drawing.box(left + begin * width, y, (stop - begin) * width, 24, "", KINDS[letter], corner=1)
        drawing.line(left + end * width, top - 4, left + end * width, top + 88, "slow")
    drawing.legend(left, 388, [("a", "forward"), ("g", "backward"), ("p", "update")])
    return drawing


def steps(text):
    """Microseconds of a step with the whole batch, and with micro-batches."""
    return [
        find(r"three parts, one after the other +(\d+) us", text)[0],
        find(r"three parts, \d+ micro-batches +(\d+) us", text)[0],
    ]


@picture
def column_row():
    drawing = Drawing(
        372,
        "Tensor parallelism: a column cut, then a row cut",
        "Column, then row: two matrices need one all-reduce forward, and one backward.",
        "Each of two ranks multiplies X by its columns of W1, applies ReLU, multiplies by its rows of W2 and has a "
        "partial sum of Y; an all-reduce adds them. Backward, the partial gradients of X are all-reduced.",
    )
    for rank in range(2):
        y = 36 + rank * 152
        drawing.device(118, y, 464, 128, f"rank {rank}", rank)
        drawing.box(136, y + 22, 36, 64, "X", "a", 14)
        drawing.text(183, y + 60, "·", 22)
        matrix(drawing, 194, y + 22, "W1", rank, columns=True)
        drawing.arrow((264, y + 54), (284, y + 54))
        drawing.box(290, y + 40, 54, 28, "ReLU", "plain", 13)
        drawing.arrow((350, y + 54), (370, y + 54))
        drawing.box(376, y + 22, 30, 64, f"H{rank}", "a", 13)
        drawing.text(417, y + 60, "·", 22)
        matrix(drawing, 428, y + 22, "W2", rank, columns=False)
        drawing.arrow((498, y + 54), (518, y + 54))
        drawing.box(524, y + 22, 38, 64, f"Y{rank}", "a", 14)
        drawing.arrow((562, y + 106), (136, y + 106), kind="back")
        drawing.text(349, y + 120, "backward", 12, kind="no")
        drawing.arrow((566, y + 54), (634, y + 54), (634, 134 + 64 * rank))
        drawing.arrow((130, y + 106), (64, y + 106), (64, 186 + 64 * rank), kind="back")
    drawing.box(592, 140, 86, 52, "all-reduce\nY0 + Y1", "a", 12, "600")
    drawing.box(22, 192, 86, 52, "all-reduce\n∂X", "g", 12, "600")
    drawing.text(226, 182, "columns", 12, kind="faint")
    drawing.text(456, 182, "rows", 12, kind="faint")
    return drawing


def matrix(drawing, x, y, name, rank, columns):
    """A matrix of which this rank has one half: its columns or its rows."""
    width, height = (32, 64) if columns else (64, 32)
    for half in range(2):
        mine = half == rank
        left, top = (x + half * width, y) if columns else (x, y + half * height)
        drawing.box(left, top, width, height, name if mine else "", "p" if mine else "ghost", 12)
