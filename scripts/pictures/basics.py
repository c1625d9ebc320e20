"""One device: memories, the tape of backward(), and how a matrix lies in memory."""

from .kit import Drawing, picture
from .sources import expected, find, find_all

KINDS = ("a", "plain")  # of the first and the second row of a matrix


@picture
def devices():
    text = expected("list_devices")
    rows, columns = find(r"batch is Tensor\[(\d+), (\d+)\]", text)
    used = find(r"after making batch +cpu:0: +(\d+ B) +cpu:1: +(\d+ B)", text)
    drawing = Drawing(
        310,
        "Two devices, two memories",
        "A tensor is in the memory of one device, and gets to another one only if you copy it.",
    )
    for device in range(2):
        drawing.device(30 + device * 400, 36, 240, 220, f"cpu:{device}", device)
        drawing.text(150 + device * 400, 70, f"in use: {used[device]}", 14, weight="600")
    drawing.grid(58, 88, int(rows), int(columns), "a", 14, 3)
    drawing.text(144, 136, f"batch [{rows}, {columns}]", 13, "start")
    drawing.box(458, 88, 70, 90, "a copy", "ghost", 12)
    drawing.arrow((278, 132), (422, 132), kind="slow")
    drawing.text(350, 122, "batch.to(cpu:1)", 12)
    drawing.box(60, 206, 60, 32, "here", "a", 13)
    drawing.box(580, 206, 60, 32, "there", "a", 13)
    drawing.box(300, 204, 100, 36, "add", "plain", 14)
    drawing.arrow((126, 222), (292, 222))
    drawing.arrow((574, 222), (408, 222))
    drawing.cross(350, 258)
    return drawing


@picture
def chain():
    text = expected("check_gradients")
    names = find_all(r"^ +(MseLoss|ReLU|Linear)$", text)[::-1]
    bias = find(r"^  b\[0\] +\S+ +(\S+)", text)[0]
    weight = find(r"^  W\[1\] +\S+ +(\S+)", text)[0]
    loss = find(r"by the engine (\S+)", text)[0]
    drawing = Drawing(
        320,
        "Forward leaves a tape, backward goes back on it",
        "Forward notes each operation; backward goes through them in reverse, to every parameter.",
    )
    for number, name in enumerate(names):
        x = 130 + number * 160
        drawing.box(x, 110, 104, 46, name, "plain", 15, "600")
        drawing.arrow((x - 50, 124), (x - 6, 124))
        drawing.arrow((x + 160 - 6 - 2, 142), (x + 110, 142), kind="back")
    drawing.box(24, 110, 48, 46, "x", "a", 15)
    drawing.arrow((130 + 3 * 160 - 50, 124), (130 + 3 * 160 - 6, 124))
    drawing.box(612, 110, 72, 46, f"loss\n{float(loss):.3f}", "a", 12)
    for column, (name, value) in enumerate((("W", f"W[1]: {float(weight):.3f}"), ("b", f"b[0]: {float(bias):.3f}"))):
        x = 116 + column * 78
        drawing.box(x, 44, 56, 32, name, "p", 14)
        drawing.arrow((x + 28, 80), (x + 28 + (20 if column == 0 else -18), 106))
        drawing.box(x - 44 + column * 44, 204, 100, 32, value.replace("-", "\u2212"), "g", 12)
        drawing.arrow((x + 28 + (20 if column == 0 else -18), 160), (x + 6 + column * 40, 200), kind="back")
    drawing.arrow((360, 60), (470, 60))
    drawing.text(350, 64, "forward", 13, "end")
    drawing.arrow((600, 220), (490, 220), kind="back")
    drawing.text(478, 224, "backward", 13, "end", "no")
    drawing.text(72, 262, "gradients: how much the loss changes with each parameter", 12, "start", "faint")
    return drawing


@picture
def gemm():
    text = expected("multiply_on_gpu")
    rows = find(r"its rows are ([\d ]+) \| ([\d ]+)", text)
    memory = find(r"memory ([\d ]+), row-major", text)[0].split()
    table = [row.split() for row in rows]
    columns = list(map(list, zip(*table)))
    drawing = Drawing(
        440,
        "Row-major and column-major",
        "Read by columns, the same bytes are the transpose: the factors change places, nothing is copied.",
    )
    for number, value in enumerate(memory):
        drawing.box(212 + number * 46, 36, 46, 34, value, KINDS[number // len(table[0])], 15, corner=0)
    drawing.text(200, 58, "memory", 13, "end", weight="600")
    drawing.arrow((280, 78), (180, 116))
    drawing.arrow((420, 78), (520, 116))
    drawing.cells(114, 130, table, lambda row, _: KINDS[row], 44, 34, 15)
    drawing.text(180, 228, f"row-major [{len(table)}, {len(table[0])}]", 13, weight="600")
    drawing.cells(476, 130, columns, lambda _, column: KINDS[column], 44, 34, 15)
    drawing.text(520, 252, f"column-major [{len(columns)}, {len(columns[0])}]", 13, weight="600")
    m, n, inner = (int(size) for size in find(r"gemm\(T, N, m=(\d+), n=(\d+), k=(\d+)", text))
    product(drawing, 70, (("x", "a", n, inner), ("Wᵀ", "p", inner, m), ("y", "a", n, m)))
    product(drawing, 378, (("W", "p", m, inner), ("xᵀ", "a", inner, n), ("yᵀ", "a", m, n)))
    return drawing


def product(drawing, x, matrices, unit=14):
    """A matrix product: (name, kind, rows, columns) of both factors and of the result."""
    for number, (name, kind, rows, columns) in enumerate(matrices):
        drawing.grid(x, 336 - rows * unit / 2, rows, columns, kind, unit, unit)
        drawing.text(x + columns * unit / 2, 336 + rows * unit / 2 + 16, f"{name} [{rows}, {columns}]", 12)
        x += columns * unit
        if number < 2:
            drawing.text(x + 14, 341, "·="[number], 18)
        x += 28
