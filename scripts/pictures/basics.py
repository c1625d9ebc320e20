"""One device: memories, the tape of backward(), and how a matrix lies in memory."""
from .kit import Drawing, picture
from .sources import expected, find, find_all

KINDS = ("a", "plain")  # of the first and the second row of a matrix


@picture
def devices():
    text = expected("list_devices")
    rows, columns, size = find(r"batch is Tensor\[(\d+), (\d+)\].*= (\d+) B", text)
    drawing = Drawing(300, "Two devices, two memories", "A tensor is in the memory of one device, and an operation's tensors must be on the same one.")
    for device in range(2):
        drawing.device(30 + device * 400, 36, 240, 208, f"cpu:{device}", device)
    drawing.grid(58, 66, int(rows), int(columns), "a", 14, 3)
    drawing.text(144, 102, f"batch [{rows}, {columns}]", 13, "start", weight="600")
    drawing.text(144, 120, f"{size} B", 12, "start", "faint")
    drawing.grid(470, 66, int(rows), int(columns), "a", 14, 3)
    drawing.text(556, 102, "a copy", 13, "start", weight="600")
    drawing.text(556, 120, f"{size} B", 12, "start", "faint")
    drawing.arrow((278, 104), (422, 104))
    drawing.text(350, 94, "batch.to(cpu:1)", 12)
    drawing.box(64, 190, 60, 32, "here", "a", 13)
    drawing.box(576, 190, 60, 32, "there", "a", 13)
    drawing.box(300, 188, 100, 36, "add", "plain", 14)
    drawing.arrow((130, 206), (292, 206))
    drawing.arrow((570, 206), (408, 206))
    drawing.cross(350, 242)
    return drawing


@picture
def chain():
    text = expected("check_gradients")
    names = find_all(r"^ +(MseLoss|ReLU|Linear)$", text)[::-1]
    bias = find(r"^  b\[0\] +\S+ +(\S+)", text)[0]
    weight = find(r"^  W\[1\] +\S+ +(\S+)", text)[0]
    loss = find(r"by the engine (\S+)", text)[0]
    drawing = Drawing(320, "Forward leaves a tape, backward goes back on it",
                      "Forward notes each operation; backward goes through them in reverse, to every parameter.")
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
    drawing = Drawing(302, "Row-major and column-major", "The same bytes, read by columns, are the transpose: cuBLAS needs no copy.")
    for number, value in enumerate(memory):
        drawing.box(212 + number * 46, 36, 46, 34, value, KINDS[number // len(table[0])], 15, corner=0)
    drawing.text(200, 58, "memory", 13, "end", weight="600")
    drawing.arrow((280, 78), (180, 116))
    drawing.arrow((420, 78), (520, 116))
    drawing.cells(114, 130, table, lambda row, _: KINDS[row], 44, 34, 15)
    drawing.text(180, 228, f"row-major [{len(table)}, {len(table[0])}]", 13, weight="600")
    drawing.cells(476, 130, columns, lambda _, column: KINDS[column], 44, 34, 15)
    drawing.text(520, 252, f"column-major [{len(columns)}, {len(columns[0])}]", 13, weight="600")
    return drawing
