"""DataParallel's four steps: scatter, replicate, parallel_apply, gather."""

import re

from .kit import Drawing, picture
from .sources import expected, find, find_all, plan


def shards():
    """Of the first batch in split_batch: (begin, end) of each device's rows."""
    return [
        (int(begin), int(end))
        for begin, end in find_all(r"device \d: rows \[(\d+), (\d+)\), \d+ rows", expected("split_batch"))
    ]


def sizes():
    """Columns of split_batch's input and of its output."""
    columns, outputs = find(r"input size \[\d+, (\d+)\] output size \[\d+, (\d+)\]", expected("split_batch"))
    return int(columns), int(outputs)


@picture
def batch():
    rows, (columns, outputs) = shards()[-1][1], sizes()
    drawing = Drawing(
        280, "A batch, the model and its outputs", "A batch has one row for each sample, and so has the model's output."
    )
    top, height = 54, 6
    drawing.text(150, 36, f"batch [{rows}, {columns}]", 13, weight="600")
    drawing.grid(110, top, rows, columns, "plain", 16, height)
    drawing.bars([(110, top + 7 * height, columns * 16, height)], "r0")
    drawing.text(76, top + 7, "0", 11, "end", "faint")
    drawing.text(76, top + 7 * height + 7, "sample 7", 12, "end")
    drawing.text(76, top + rows * height, rows - 1, 11, "end", "faint")
    drawing.box(300, top + 50, 110, 70, "model\nW, b", "p", 14)
    drawing.arrow((200, top + 85), (292, top + 85))
    drawing.arrow((418, top + 85), (500, top + 85))
    drawing.text(246, top + 76, "forward", 12)
    drawing.text(526, 36, f"output [{rows}, {outputs}]", 13, weight="600")
    drawing.grid(510, top, rows, outputs, "a", 16, height)
    drawing.bars([(510, top + 7 * height, outputs * 16, height)], "r0")
    drawing.arrow((550, top + 85), (600, top + 85))
    drawing.box(608, top + 68, 60, 34, "loss", "plain", 13)
    return drawing


@picture
def scatter():
    drawing = Drawing(330, "Scatter", "Scatter cuts the batch along its rows: each device gets its own rows, once.")
    (columns, _), parts = sizes(), shards()
    rows = parts[-1][1]
    top, width, height = 74, 16, 6
    drawing.text(100, 40, f"batch [{rows}, {columns}]", 13, weight="600")
    drawing.text(100, 58, "on cpu:0", 12, kind="faint")
    for device, (begin, end) in enumerate(parts):
        y = top + begin * height
        drawing.grid(60, y, end - begin, columns, f"r{device}", width, height)
        target = 28 + device * 94
        drawing.device(350, target, 300, 72, f"cpu:{device}", device)
        drawing.grid(425, target + 8, end - begin, columns, f"r{device}", width, 5.6)
        drawing.text(525, target + 32, f"rows {begin} ... {end - 1}", 13, "start")
        kind = find(rf"shard {device}: Tensor\S+ \S+ float32 on cpu:{device}, a (\w+)", expected("split_batch"))[0]
        drawing.text(525, target + 52, f"a {kind}", 12, "start", "faint")
        drawing.arrow((60 + columns * width + 8, y + (end - begin) * height / 2), (340, target + 37))
    return drawing


def weight_cells(drawing, x, y, kind="p"):
    columns, outputs = sizes()
    drawing.grid(x, y, outputs, columns, kind, 16, 14)


@picture
def replicate():
    drawing = Drawing(
        312, "Replicate", "Replicate copies the model to every device: for one step each has the same weights."
    )
    columns, outputs = sizes()
    drawing.device(40, 92, 190, 96, "cpu:0", 0)
    drawing.text(135, 122, "the model", 13, weight="600")
    weight_cells(drawing, 95, 132)
    drawing.text(135, 178, f"weight [{outputs}, {columns}]", 12)
    for device in range(len(shards())):
        y = 32 + device * 84
        drawing.device(430, y, 220, 62, f"cpu:{device}", device)
        weight_cells(drawing, 455, y + 18)
        drawing.text(550, y + 30, f"replica {device}", 13, "start")
        drawing.text(550, y + 47, "same weights", 12, "start", "faint")
        drawing.arrow((236, 140), (422, y + 31))
    drawing.text(300, 84, "Broadcast", 12)
    return drawing


@picture
def parallel_apply():
    drawing = Drawing(312, "parallel_apply", "Each replica computes the outputs of its own rows, all at the same time.")
    columns, outputs = sizes()
    for device, (begin, end) in enumerate(shards()):
        y, rows = 32 + device * 84, end - begin
        drawing.device(40, y, 620, 66, f"cpu:{device}", device)
        drawing.grid(70, y + 15, rows, columns, f"r{device}", 14, 4)
        drawing.text(160, y + 40, f"[{rows}, {columns}]", 12, "start")
        drawing.arrow((212, y + 36), (268, y + 36))
        drawing.box(276, y + 15, 120, 42, f"replica {device}", "p", 13)
        drawing.arrow((404, y + 36), (460, y + 36))
        drawing.grid(476, y + 15, rows, outputs, "a", 14, 4)
        drawing.text(520, y + 40, f"[{rows}, {outputs}]", 12, "start")
    return drawing


@picture
def gather():
    drawing = Drawing(330, "Gather", "Gather puts the outputs back together, in the order of the rows, on one device.")
    (_, outputs), parts = sizes(), shards()
    rows, top, height = parts[-1][1], 82, 6
    drawing.device(452, 40, 200, 232, "cpu:0", 0)
    drawing.text(552, 68, f"output [{rows}, {outputs}]", 13, weight="600")
    for device, (begin, end) in enumerate(parts):
        source = 28 + device * 94
        drawing.device(40, source, 200, 72, f"cpu:{device}", device)
        drawing.grid(110, source + 8, end - begin, outputs, f"r{device}", 18, 5.6)
        drawing.text(160, source + 42, f"[{end - begin}, {outputs}]", 13, "start")
        y = top + begin * height
        drawing.grid(534, y, end - begin, outputs, f"r{device}", 18, height)
        drawing.arrow((246, source + 37), (526, y + (end - begin) * height / 2))
    return drawing


def split(rows, devices):
    """Each device's number of rows, as `lockstep plan scatter` has them."""
    return [
        int(count) for count in re.findall(r"(\d+) rows?$", plan("scatter", "--rows", rows, "--devices", devices), re.M)
    ]


@picture
def unequal_shards():
    drawing = Drawing(250, "Unequal shards", "Shards have ceil(rows / devices) rows; the last ones get fewer, or none.")
    for y, devices in ((30, 4), (120, 8)):
        counts = split(10, devices)
        drawing.text(40, y + 26, "10 rows", 13, "start", weight="600")
        drawing.text(40, y + 44, f"on {devices} devices", 13, "start")
        x = 170
        for device in range(devices):
            count = counts[device] if device < len(counts) else 0
            width = max(count, 1) * 24 - 2
            for row in range(count):
                drawing.box(x + row * 24, y + 18, 22, 24, sum(counts[:device]) + row, f"r{device % 4}", 11)
            if not count:
                drawing.box(x, y + 18, 22, 24, "", "ghost")
            drawing.text(x + width / 2, y + 60, device, 12)
            x += width + (440 - 24 * 10) / devices
    return drawing
