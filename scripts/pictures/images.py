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
            drawing.parts.append(f'<rect x="{34 + column * 24}" y="{28 + row * 24}" width="24" height="24" '
                                 f'fill="#{grey:02x}{grey:02x}{grey:02x}" stroke="#9aa5b1" stroke-width=".5"/>')
    drawing.arrow((236, 124), (276, 124))
    for row, line in enumerate(pixels):
        for column, value in enumerate(line):
            drawing.box(288 + column * 28, 28 + row * 24, 28, 24, value, "a" if value else "plain", 12, corner=0)
    drawing.arrow((522, 124), (562, 124))
    drawing.box(572, 100, 96, 48, f"model", "p", 14)
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
    image = [[rows[0][0], rows[0][1], rows[0][2], rows[1][2]], [*rows[0][3:6], rows[1][5]], [*rows[0][6:9], rows[1][8]],
             [*rows[2][6:9], rows[3][8]]]
    drawing = Drawing(330, "A convolution: patches times a kernel",
                      "Each place where the kernel fits is one row of 9 numbers, multiplied by the same 9 weights.")
    drawing.text(90, 40, "image 4 × 4", 13, weight="600")
    drawing.cells(30, 54, image, "plain", 30, 30, 13)
    drawing.parts.append('<path d="M30 54h90v90h-90z" class="good"/>')
    drawing.text(90, 196, "first patch", 12, kind="yes")
    drawing.text(90, 214, "3 × 3", 12, kind="yes")
    drawing.arrow((160, 114), (206, 114))
    drawing.text(334, 40, "patches [4, 9]", 13, weight="600")
    for number, row in enumerate(rows):
        drawing.cells(216, 54 + number * 36, [row], f"r{number}", 26, 28, 13)
        drawing.text(536, 73 + number * 36, "=", 14)
        drawing.box(552, 54 + number * 36, 44, 28, results[number], f"r{number}", 14, "600")
    drawing.parts.append('<path d="M216 54h234v28h-234z" class="good"/>')
    drawing.text(468, 128, "·", 26)
    drawing.text(502, 40, "kernel [9]", 13, weight="600")
    for number, weight in enumerate(kernel):
        drawing.box(484, 52 + number * 17, 38, 17, weight.replace("-", "\u2212"), "p", 12, corner=0)
    drawing.text(648, 40, "output 2 × 2", 13, weight="600")
    for number, result in enumerate(results):
        drawing.box(616 + number % 2 * 32, 82 + number // 2 * 32, 32, 32, result, f"r{number}", 14, "600", corner=0)
    drawing.cells(216, 226, [[weight.replace("-", "\u2212") for weight in kernel[row * 3:row * 3 + 3]] for row in range(3)], "p", 26, 22, 12)
    drawing.text(306, 262, "the same 9 weights as a 3 × 3 kernel", 12, "start", "faint")
    return drawing


def spots(drawing, x, y, scale, values, rank, low):
    """Values as dots on a number line that begins at `low`."""
    for value in values:
        drawing.parts.append(f'<circle cx="{x + (value - low) * scale:g}" cy="{y:g}" r="8" class="r{rank % 4}"/>')


@picture
def batch_norm():
    text = expected("share_statistics")
    numbers = r"^{}((?: +[-\d.]+)+) +mean +([-\d.]+) +->((?: +[-\d.]+)+)$"
    one = find_all(numbers.format("one device"), text)[0]
    halves = [find_all(numbers.format(f"device {device}"), text) for device in range(2)]
    drawing = Drawing(400, "Batch norm on two devices", "With statistics of their own rows 0 and 3 become the same number; shared statistics keep them apart.",
                      "Six numbers, on one device and on two, and what batch norm makes of them.")
    drawing.text(170, 34, "numbers, and their mean", 13, weight="600")
    drawing.text(540, 34, "after batch norm", 13, weight="600")
    cases = (("one device", [one]), ("own rows", [half[0] for half in halves]), ("shared", [half[1] for half in halves]))
    for case, (name, parts) in enumerate(cases):
        y = 78 + case * 108
        drawing.text(20, y - 18, name, 13, "start", weight="600")
        drawing.line(50, y + 14, 300, y + 14)
        drawing.line(410, y + 14, 670, y + 14)
        drawing.line(540, y - 4, 540, y + 44, "slow")
        for device, (values, mean, results) in enumerate(parts):
            inputs, outputs = [float(value) for value in values.split()], [float(value) for value in results.split()]
            lower = device * 18 if name == "own rows" else 0
            spots(drawing, 60, y + 14, 46, inputs, device if len(parts) > 1 else 2, 0)
            spots(drawing, 540, y + 14 + lower, 78, outputs, device if len(parts) > 1 else 2, 0)
            if name != "shared":
                mark_mean(drawing, 60 + float(mean) * 46, y + 14, mean)
        if name == "shared":
            mark_mean(drawing, 60 + float(one[1]) * 46, y + 14, one[1])
        drawing.arrow((330, y + 14), (390, y + 14))
        drawing.text(540, y + 62, "0", 11, kind="faint")
    drawing.legend(180, 62, [])
    drawing.chip(574, 358 - 10, "device 1", 1)
    drawing.chip(490, 358 - 10, "device 0", 0)
    return drawing


def mark_mean(drawing, x, y, mean):
    drawing.line(x, y - 18, x, y + 20, "good")
    drawing.text(x, y + 36, f"mean {float(mean):g}", 12, kind="yes")


@picture
def running_statistics():
    mean = float(find(r"^one device .*mean +([\d.]+)", expected("share_statistics"))[0])
    drawing = Drawing(330, "Running statistics", "Training uses each batch's own mean; evaluation the running mean, which follows it slowly.",
                      f"The running mean starts at 0 and goes a tenth of the way to the batch's mean, {mean}, in every step.")
    left, bottom, stride, scale = 80, 236, 26, 150 / (mean * 1.1)
    drawing.line(left, bottom, left + 420, bottom, "go")
    drawing.line(left, 50, left, bottom, "go")
    drawing.text(left + 210, 272, "training step", 12)
    running = 0.0
    for step in range(16):
        x = left + 10 + step * stride
        drawing.parts.append(f'<circle cx="{x}" cy="{bottom - mean * scale:.1f}" r="4" class="a"/>')
        if step:
            running = (1 - MOMENTUM) * running + MOMENTUM * mean
        drawing.box(x - 8, bottom - running * scale, 16, running * scale, "", "o", corner=1)
        if step % 5 == 0:
            drawing.text(x, bottom + 16, step, 11)
    drawing.text(left - 8, bottom - mean * scale + 4, f"{mean:g}", 12, "end")
    drawing.text(left - 8, bottom + 4, "0", 12, "end")
    drawing.box(530, 64, 146, 56, "training:\nthe batch's mean", "a", 13)
    drawing.box(530, 150, 146, 56, "evaluation:\nthe running mean", "o", 13)
    drawing.text(350, 40, f"running = 0.9 · running + {MOMENTUM:g} · batch's mean", 13)
    return drawing
