"""ZeRO: what each rank keeps at each depth, and the order of a step."""

from .kit import Drawing, picture
from .sources import expected, find

RANKS = 4
THINGS = (("p", "parameters"), ("g", "gradients"), ("o", "optimizer: twice as much"))
ROWS = ((0, 13), (15, 13), (30, 26))  # top and height of each thing: AdamW keeps two numbers for each parameter


@picture
def zero_depths():
    text = expected("shard_state")
    depths = [
        (name, find(rf"^{name} +(\d+) KiB", text)[0], find(rf"^{name} .* (\d\.\d+)x", text)[0])
        for name in ("ddp", "optimizer", "gradients", "parameters")
    ]
    drawing = Drawing(
        416,
        "What each rank keeps: DDP and ZeRO's three depths",
        "Each depth cuts one more thing into quarters, and a rank keeps only its own.",
    )
    left = 122
    for rank in range(RANKS):
        drawing.chip(left + rank * 112 + 22, 20, f"rank {rank}", rank)
    drawing.text(612, 34, "KiB kept · sent", 12, kind="faint")
    labels = ("DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3")
    for depth, (_, kept, sent) in enumerate(depths):
        y = 54 + depth * 76
        drawing.text(24, y + 30, labels[depth], 14, "start", weight="600")
        for rank in range(RANKS):
            x = left + rank * 112
            for row, (kind, _) in enumerate(THINGS):
                cut = row >= len(THINGS) - depth
                for quarter in range(RANKS):
                    mine = not cut or quarter == rank
                    drawing.box(
                        x + quarter * 25, y + ROWS[row][0], 23, ROWS[row][1], "", kind if mine else "ghost", corner=2
                    )
        drawing.text(612, y + 28, kept, 15, weight="600")
        drawing.text(612, y + 46, f"{float(sent):g} × DDP's", 12, kind="faint")
    drawing.legend(left, 366, list(THINGS))
    return drawing


@picture
def zero_order():
    drawing = Drawing(
        406,
        "The order of a sharded step: reduce-scatter, step, all-gather",
        "The step on its own quarter fits between the two halves of DDP's all-reduce.",
    )
    stages = ("gradients", "reduce-scatter", "step", "all-gather")
    for rank in range(RANKS):
        drawing.chip(18, 78 + rank * 66, f"rank {rank}", rank)
    for stage, title in enumerate(stages):
        x = 96 + stage * 152
        drawing.text(x + 56, 32, title, 14, weight="600")
        drawing.text(
            x + 56,
            50,
            ("of its own rows", "average of its quarter", "update its quarter", "all quarters again")[stage],
            12,
            kind="faint",
        )
        for rank in range(RANKS):
            y = 66 + rank * 66
            for quarter in range(RANKS):
                mine = quarter == rank
                left = x + quarter * 28
                if stage < 2:
                    drawing.box(left, y + 10, 26, 26, "", "g" if stage == 0 or mine else "ghost")
                    if stage == 1 and mine:
                        drawing.text(left + 13, y + 28, "Σ", 14, kind="k", weight="700")
                elif stage == 2 and mine:
                    for (kind, _), (top, height) in zip(THINGS, ROWS):
                        drawing.box(left, y - 4 + top, 26, height, "", kind)
                elif stage == 2:
                    drawing.box(left, y + 10, 26, 26, "", "ghost")
                else:
                    drawing.box(left, y + 10, 26, 26, "", "p")
            if stage:
                drawing.arrow((x - 34, y + 23), (x - 8, y + 23))
    drawing.legend(96, 360, list(THINGS))
    return drawing
