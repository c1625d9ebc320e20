"""Averages of gradients, and plans in which ranks pass whole buffers."""

from .kit import Drawing, picture
from .sources import all_reduce_steps, expected, find


@picture
def mean_of_means():
    text = expected("fill_buckets")
    one, two, wrong, whole = find(r"rank 0 (\S+)   rank 1 (\S+)   average (\S+)\s+one device (\S+)$", text)
    text = text[text.index("weigh each rank's loss") :]
    heavy, light = find(r"so by (\d+/\d+) and (\d+/\d+)", text)
    first, second, right, _ = find(r"rank 0 (\S+)   rank 1 (\S+)   average (\S+)\s+one device (\S+)$", text)
    drawing = Drawing(
        330,
        "The mean of means is not the mean",
        "Ranks with unequal rows: weigh each rank's gradient by its rows before averaging.",
    )
    drawing.text(120, 34, "rows", 12, kind="faint")
    drawing.text(290, 34, "gradient: mean of its rows", 12, kind="faint")
    for rank, (y, rows, mean) in enumerate(((52, 2, one), (140, 1, two))):
        drawing.chip(30, y + 18, f"rank {rank}", rank)
        for row in range(rows):
            drawing.box(
                104, y + 8 + row * 24 + (12 if rows == 1 else 0), 80, 20, f"row {rank * 2 + row}", f"r{rank}", 12
            )
        drawing.arrow((192, y + 30), (236, y + 30))
        drawing.box(244, y + 14, 92, 32, short(mean), "g", 14)
    for y, name, weights, values, result in (
        (52, "plain average", ("1/2", "1/2"), (one, two), wrong),
        (140, "weighted average", ("2/3", "1/3"), (one, two), right),
    ):
        drawing.box(400, y - 10, 268, 76, "", "soft", corner=6)
        drawing.text(416, y + 12, name, 13, "start", weight="600")
        sums = " + ".join(f"{weight} · ({short(value)})" for weight, value in zip(weights, values))
        drawing.text(416, y + 32, sums, 12, "start")
        drawing.text(416, y + 54, f"= {short(result)}", 14, "start", weight="600")
        (drawing.cross if result != whole else drawing.tick)(640, y + 10)
    for begin, end in ((76, 66), (88, 154), (164, 98), (176, 186)):
        drawing.arrow((342, begin), (392, end))
    drawing.text(30, 250, "one device, all 3 rows:", 13, "start")
    drawing.box(244, 230, 92, 32, short(whole), "g", 14)
    drawing.text(400, 244, "DDP divides by the number of ranks, so each", 12, "start")
    drawing.text(400, 262, f"loss is weighed by rows · 2/3: {heavy} and {light}", 12, "start")
    return drawing


@picture
def average():
    text = expected("train_replicas")
    total, whole = find(r"one device has all (\d+) rows: +(\S+)", text)
    means = [
        find(rf"rank {rank} has (\d+) of them: +([-+\d.]+), after the average ([-+\d.]+)", text) for rank in range(2)
    ]
    drawing = Drawing(
        290,
        "Equal shards: the mean of the means is the mean",
        "Each rank averages over equally many rows, so the average of their gradients is that of all rows.",
    )
    drawing.text(160, 34, "rows", 12, kind="faint")
    drawing.text(314, 34, "gradient: mean of its rows", 12, kind="faint")
    drawing.text(564, 34, "after the average", 12, kind="faint")
    for rank, (rows, mean, after) in enumerate(means):
        y = 52 + rank * 72
        drawing.chip(30, y + 12, f"rank {rank}", rank)
        drawing.grid(104, y + 4, 4, int(rows) // 4, f"r{rank}", 14, 9)
        drawing.text(160, y + 56, f"{rows} rows", 12)
        drawing.arrow((224, y + 22), (262, y + 22))
        drawing.box(270, y + 6, 88, 32, short(mean), "g", 14)
        drawing.box(520, y + 6, 88, 32, short(after), "g", 14)
        drawing.tick(636, y + 22)
        for other in range(2):
            drawing.arrow((364, y + 18 + 8 * other), (512, 52 + other * 72 + 18 + 8 * rank))
    drawing.line(30, 202, 670, 202)
    drawing.text(30, 232, "one device", 13, "start", weight="600")
    drawing.text(160, 232, f"{total} rows", 12)
    drawing.box(520, 212, 88, 32, short(whole), "g", 14)
    drawing.arrow((224, 228), (512, 228))
    return drawing


def short(number):
    """Three decimals, with a true minus sign."""
    return f"{float(number):.3f}".replace("-", "\u2212")


@picture
def gather_sum():
    text = expected("sum_gradients")
    starts = [find(rf"^    rank {rank}: +(\d+) +(\d+) +(\d+)$", text) for rank in range(4)]
    sums = [str(sum(int(start[column]) for start in starts)) for column in range(3)]
    steps = all_reduce_steps("reduce-broadcast", 4, 3)
    drawing = Drawing(
        340, "All gradients to rank 0", "Rank 0 receives, adds and sends back everything: the others wait for it."
    )
    for step, (title, transfers) in enumerate(steps):
        x = 40 + step * 350
        drawing.text(x + 120, 34, f"{step + 1}. {'add on' if step == 0 else 'copy from'} rank 0", 13, weight="600")
        for rank in range(4):
            y = 60 + rank * 66
            drawing.chip(x, y + 4, f"rank {rank}", rank)
            values = starts[rank] if step == 0 else sums
            drawing.cells(x + 66, y, [values], f"r{rank}" if step == 0 else "g", 46, 28, 13)
        for sender, receiver, *_ in transfers:
            far, lane = max(sender, receiver), x + 212 + 20 * max(sender, receiver)
            ends = [(x + 208, 74 + 66 * far), (lane, 74 + 66 * far), (lane, 66 + 6 * far), (x + 208, 66 + 6 * far)]
            drawing.arrow(*(ends if receiver == 0 else ends[::-1]))
    return drawing
