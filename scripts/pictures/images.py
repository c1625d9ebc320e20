"""Images: a digit, patches, batch norm's statistics and the running ones."""

from .kit import Drawing, picture
from .sources import digit as read_digit
from .sources import expected, find, find_all

MOMENTUM = 0.1  # weight of the batch in the running statistics: engine/nn/batch_norm.h


@picture
def digit():
    label, pixels = read_digit(3)
    drawing = Drawing(330, "A digit and its 64 numbers", f"To a model, this {label} is a row of 64 numbers.")
    for row, line in enumerate(pixels):
        for column, value in enumerate(line):
            grey = 255 - round(value / 16 * 255)
            drawing.parts.append(
                f'<rect x="{34 + column * 24}" y="{28 + row * 24}" width="24" height="24" '
                f'fill="#{grey:02x}{grey:02x}{grey:02x}" stroke="#9aa5b1" stroke-width=".5"/>'
            )
    drawing.arrow((236, 124), (276, 124))
    for row, line in enumerate(pixels):
        for column, value in enumerate(line):
            drawing.box(288 + column * 28, 28 + row * 24, 28, 24, value, "a" if value else "plain", 12, corner=0)
    drawing.arrow((522, 124), (562, 124))
    drawing.box(572, 100, 96, 48, "model", "p", 14)
    drawing.arrow((620, 154), (620, 190))
    drawing.text(620, 214, f"label {label}", 15, weight="600")
    flat = [value for line in pixels for value in line]
    drawing.text(34, 254, "the row:", 12, "start", "faint")
    for number, value in enumerate(flat[:22]):
        drawing.box(86 + number * 25, 238, 25, 22, value, "a" if value else "plain", 11, corner=0)
    drawing.text(86 + 22 * 25 + 8, 254, "… 64", 12, "start")
    drawing.text(34, 284, "0 is white, 16 is black", 12, "start", "faint")
    return drawing


@picture
def patches():
    text = expected("cut_patches")
    rows = [line.split() for line in find_all(r"^  row \d   ([\d ]+)  ->", text)]
    results = find_all(r"^  row \d .*->\s+(\S+)$", text)
    kernel = find(r"^  kernel   ([-\d ]+)$", text)[0].split()
    image = [
        [rows[0][0], rows[0][1], rows[0][2], rows[1][2]],
        [*rows[0][3:6], rows[1][5]],
        [*rows[0][6:9], rows[1][8]],
        [*rows[2][6:9], rows[3][8]],
    ]
    drawing = Drawing(
        330,
        "A convolution: patches times a kernel",
        "Each place where the kernel fits is one row of 9 numbers, multiplied by the same 9 weights.",
    )
    drawing.text(78, 40, "image 4 × 4", 13, weight="600")
    drawing.cells(18, 54, image, "plain", 30, 30, 13)
    drawing.parts.append('<path d="M18 54h90v90h-90z" class="good"/>')
    drawing.text(78, 196, "first patch", 12, kind="yes")
    drawing.arrow((148, 114), (190, 114))
    drawing.text(317, 40, "patches [4, 9]", 13, weight="600")
    for number, row in enumerate(rows):
        y = 54 + number * 36
        drawing.cells(200, y, [row], "a", 26, 28, 13)
        drawing.text(514, y + 19, "=", 14)
        drawing.box(528, y, 40, 28, results[number], "a", 14, "600", corner=0)
        drawing.box(604 + number % 2 * 34, 92 + number // 2 * 34, 34, 34, results[number], "a", 14, "600", corner=0)
    for x, y, width, height in ((200, 54, 234, 28), (528, 54, 40, 28), (604, 92, 34, 34)):
        drawing.parts.append(f'<path d="M{x} {y}h{width}v{height}h-{width}z" class="good"/>')
    drawing.text(446, 128, "·", 26)
    drawing.text(477, 40, "kernel [9]", 13, weight="600")
    for number, weight in enumerate(kernel):
        drawing.box(458, 52 + number * 17, 38, 17, minus(weight), "p", 12, corner=0)
    drawing.text(638, 40, "output 2 × 2", 13, weight="600")
    drawing.cells(
        278, 222, [[minus(weight) for weight in kernel[row * 3 : row * 3 + 3]] for row in range(3)], "p", 26, 22, 12
    )
    drawing.text(368, 259, "the same 9 weights, as a 3 × 3 kernel", 12, "start", "faint")
    return drawing


def minus(number):
    return number.replace("-", "\u2212")


def spots(drawing, x, y, scale, values, rank):
    """Values as dots on a number line whose 0 is at x."""
    for value in values:
        drawing.parts.append(f'<circle cx="{x + value * scale:g}" cy="{y:g}" r="8" class="r{rank % 4}"/>')


@picture
def batch_norm():
    text = expected("share_statistics")
    numbers = r"^{}((?: +[-\d.]+)+) +mean +([-\d.]+) +->((?: +[-\d.]+)+)$"
    one = find_all(numbers.format("one device"), text)[0]
    halves = [find_all(numbers.format(f"device {device}"), text) for device in range(2)]
    drawing = Drawing(
        402,
        "Batch norm on two devices",
        "With statistics of their own rows, 0 and 3 become the same; shared ones keep them apart.",
        "Six numbers, on one device and on two, and what batch norm makes of them.",
    )
    drawing.text(170, 34, "numbers, and their mean", 13, weight="600")
    drawing.text(540, 34, "after batch norm", 13, weight="600")
    cases = (
        ("one device", [one]),
        ("own rows", [half[0] for half in halves]),
        ("shared", [half[1] for half in halves]),
    )
    for case, (name, parts) in enumerate(cases):
        y = 78 + case * 108
        drawing.text(20, y - 18, name, 13, "start", weight="600")
        drawing.line(50, y + 14, 300, y + 14)
        drawing.line(410, y + 14, 670, y + 14)
        drawing.line(540, y - 4, 540, y + 44, "slow")
        for device, (values, mean, results) in enumerate(parts):
            inputs, outputs = [float(value) for value in values.split()], [float(value) for value in results.split()]
            lower = device * 18 if name == "own rows" else 0
            spots(drawing, 60, y + 14, 46, inputs, device)
            spots(drawing, 540, y + 14 + lower, 78, outputs, device)
            if name != "shared":
                mark_mean(drawing, 60 + float(mean) * 46, y + 14, mean)
        if name == "shared":
            mark_mean(drawing, 60 + float(one[1]) * 46, y + 14, one[1])
        drawing.arrow((330, y + 14), (390, y + 14))
        drawing.text(540, y + 62, "0", 11, kind="faint")
    for device in range(2):
        drawing.chip(325, 18 + device * 24, f"device {device}", device)
    return drawing


def mark_mean(drawing, x, y, mean):
    drawing.line(x, y - 18, x, y + 20, "good")
    drawing.text(x, y + 36, f"mean {float(mean):g}", 12, kind="yes")


@picture
def running_statistics():
    text = expected("share_statistics")
    means = [float(mean) for mean in find_all(r"^device [01] .*mean +([\d.]+) ", text)[:2]]
    drawing = Drawing(
        330,
        "Running statistics on two ranks",
        "Each rank's running mean follows its own rows, and evaluation uses it: the ranks' answers differ.",
        f"Running means start at 0 and go a tenth of the way to the batch's mean in every step; rank 0's batches have the "
        f"mean {means[0]:g}, rank 1's {means[1]:g}.",
    )
    left, bottom, stride, scale = 60, 240, 28, 160 / max(means)
    drawing.line(left, bottom, left + 460, bottom, "go")
    drawing.line(left, 56, left, bottom, "go")
    drawing.text(left + 230, 272, "training step", 12)
    running = [0.0, 0.0]
    for step in range(16):
        x = left + 12 + step * stride
        for rank, mean in enumerate(means):
            if step:
                running[rank] = (1 - MOMENTUM) * running[rank] + MOMENTUM * mean
                height = running[rank] * scale
                drawing.box(x - 10 + rank * 11, bottom - height, 9, height, "", f"r{rank}", corner=1)
        if step % 5 == 0:
            drawing.text(x, bottom + 16, step, 11)
    for rank, mean in enumerate(means):
        y = bottom - mean * scale
        drawing.line(left, y, left + 460, y, "slow")
        drawing.text(left - 8, y + 4, f"{mean:g}", 12, "end")
        drawing.chip(538, y - 20, f"rank {rank}", rank)
        drawing.text(538, y + 16, "its batches' mean", 12, "start")
    drawing.text(left - 8, bottom + 4, "0", 12, "end")
    drawing.text(left + 230, 38, f"running = {1 - MOMENTUM:g} · running + {MOMENTUM:g} · batch's mean", 13)
    return drawing
