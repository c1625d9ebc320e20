#!/usr/bin/env python3
"""Draws the diagrams in docs/images from the plans that `lockstep plan` prints.

  scripts/diagrams.py [--program PATH] [FOLDER]

Writes dp_and_ddp.svg (one step of each, side by side), buckets.svg (when DDP's buckets travel) and
ring.svg (the ring all-reduce, step by step) into FOLDER (default: docs/images).
"""
import argparse
import pathlib
import re
import subprocess

INK, FAINT, PAPER = "#1f2933", "#9aa5b1", "#ffffff"
COLOURS = ["#4c8dd6", "#e08e45", "#57a773", "#a06cd5"]  # of the ranks, and of what they hold
MODEL = "mlp:64-512-512-512-512-10"
DEVICES = 4


class Drawing:
    """An SVG under construction: a white card, so that it reads on dark pages too."""

    def __init__(self, width, height):
        self.size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
        self.parts = [f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>']

    def text(self, x, y, words, size=13, anchor="middle", colour=INK, weight="normal"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" '
                          f'fill="{colour}" font-weight="{weight}">{words}</text>')

    def box(self, x, y, width, height, words="", fill=PAPER, line=INK, opacity=1.0, size=12):
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" '
                          f'fill="{fill}" fill-opacity="{opacity:g}" stroke="{line}"/>')
        if words:
            self.text(x + width / 2, y + height / 2 + size / 3, words, size)

    def arrow(self, x0, y0, x1, y1, colour=INK):
        self.parts.append(f'<path d="M{x0:g},{y0:g} L{x1:g},{y1:g}" fill="none" stroke="{colour}" '
                          f'stroke-width="1.6" marker-end="url(#tip)"/>')

    def save(self, path):
        head = ('<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="6" '
                'markerHeight="6" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#6b7785"/></marker></defs>')
        body = "\n".join(self.parts)
        path.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {self.size} '
                        f'font-family="sans-serif">\n{head}\n{body}\n</svg>\n', encoding="utf-8")


def print_plan(program, *words):
    return subprocess.run([program, "plan", *words], check=True, text=True,
                          stdout=subprocess.PIPE).stdout


def draw_steps(program, path):
    """One step of DataParallel and one of DDP: devices are columns, stages are rows."""
    plan = print_plan(program, "scatter", "--rows", "64", "--devices", str(DEVICES))
    rows = re.findall(r"device \d+: rows (\[\d+, \d+\))", plan)
    drawing = Drawing(960, 430)
    dp, ddp = 20, 500  # where each half begins
    cell, gap, top, height, stride = 98, 10, 76, 34, 60

    def at(left, device, stage):
        return left + device * (cell + gap), top + stage * stride

    def put(left, device, stage, words, opacity=0.22):
        x, y = at(left, device, stage)
        drawing.box(x, y, cell, height, words, COLOURS[device], COLOURS[device], opacity)

    def spread(left, stage, towards_first):
        """Arrows between the first device's cell of a stage and the others' of the next one."""
        for device in range(1, DEVICES):
            x0, y0 = at(left, 0, stage)
            x1, y1 = at(left, device, stage + 1)
            begin, end = (x0 + cell / 2, y0 + height), (x1 + cell / 2, y1)
            if towards_first:
                begin, end = (x1 + cell / 2, y0 + height), (x0 + cell / 2 + 4 * device, y1)
            drawing.arrow(*begin, *end, FAINT)

    for left, title, note in (
            (dp, "DataParallel", "one process; device 0 does more than the others"),
            (ddp, "DistributedDataParallel", "one rank for each device; all do the same")):
        drawing.text(left, 26, title, 17, "start", weight="bold")
        drawing.text(left, 45, note, 13, "start", FAINT)
        for device in range(DEVICES):
            word = "device" if left == dp else "rank"
            drawing.text(at(left, device, 0)[0] + cell / 2, 66, f"{word} {device}", 12)

    put(dp, 0, 0, "batch, weights")
    spread(dp, 0, towards_first=False)
    for device in range(DEVICES):
        put(dp, device, 1, f"rows {rows[device]}")
        put(dp, device, 2, "forward")
        put(dp, device, 4, "backward")
    spread(dp, 2, towards_first=True)
    put(dp, 0, 3, "outputs, loss")
    spread(dp, 3, towards_first=False)
    spread(dp, 4, towards_first=True)
    put(dp, 0, 5, "sum, update")
    for stage, words in ((0, "scatter rows, replicate weights"), (3, "gather outputs"),
                         (5, "sum gradients on device 0")):
        x, y = at(dp, 1, stage)
        drawing.text(x + 6, y + 21, words, 12, "start", FAINT)

    for device in range(DEVICES):
        put(ddp, device, 0, "same weights")
        put(ddp, device, 1, f"rows {rows[device]}")
        put(ddp, device, 2, "forward, loss")
        put(ddp, device, 3, "backward")
        put(ddp, device, 5, "update")
    x, y = at(ddp, 0, 4)
    drawing.box(x, y, DEVICES * (cell + gap) - gap, height,
                "all-reduce, bucket by bucket, while backward goes on", "#f3f4f6", FAINT)
    for device in range(DEVICES):
        x, _ = at(ddp, device, 0)
        drawing.arrow(x + cell / 2, at(ddp, 0, 3)[1] + height, x + cell / 2, at(ddp, 0, 4)[1], FAINT)
        drawing.arrow(x + cell / 2, at(ddp, 0, 4)[1] + height, x + cell / 2, at(ddp, 0, 5)[1], FAINT)
    drawing.save(path)


def draw_buckets(program, path):
    """DDP's compute and communication lanes. A layer's width is its number of parameters."""
    plan = print_plan(program, "buckets", "--model", MODEL, "--first-bucket-mib", "0.5",
                      "--bucket-mib", "1")
    names = dict(re.findall(r"^parameter (\d+): (\S+)", plan, re.M))
    buckets = []
    for line in plan.splitlines():
        if line.startswith("bucket"):
            buckets.append((int(line.split()[-2]), []))
        elif line.startswith("  parameter"):
            number, num_bytes = re.match(r"  parameter (\d+): .*, (\d+) B", line).groups()
            buckets[-1][1].append((names[number], int(num_bytes)))
    total = sum(num_bytes for num_bytes, _ in buckets)
    drawing = Drawing(960, 216)
    drawing.text(20, 28, f"When DDP's buckets travel: {MODEL}, buckets that close at 0.5 and 1 MiB", 16, "start",
                 weight="bold")
    left, scale, free = 130, 520 / total, 0.0
    for y, lane in ((80, "compute"), (135, "communication")):
        drawing.text(left - 12, y + 4, lane, 13, "end")
    drawing.box(left, 62, 90, 36, "forward", "#f3f4f6", FAINT)
    x = left + 90
    for number, (num_bytes, slots) in enumerate(buckets):
        colour = COLOURS[number % len(COLOURS)]
        width = max(num_bytes * scale, 34)
        drawing.box(x, 62, width, 36, f"backward of {number}" if width > 90 else str(number), colour,
                    colour, 0.22)
        x += width
        start = max(x, free)
        free = start + width * 0.8
        drawing.arrow(x, 98, start + 1, 117, FAINT)
        drawing.box(start, 117, free - start, 36, f"bucket {number}" if free - start > 60 else
                    str(number), colour, colour, 0.5)
    drawing.box(free, 62, 70, 36, "update", "#f3f4f6", FAINT)
    contents = [f"{number}: " + " ".join(name for name, _ in slots) +
                f" ({num_bytes / 2**20:.2f} MiB)" for number, (num_bytes, slots) in enumerate(buckets)]
    drawing.text(20, 180, ";   ".join(contents), 12, "start")
    drawing.text(20, 200, "The last layer's gradients are ready first. Only what travels after the end "
                 "of backward costs time. Widths follow the bytes; they are no measured times.", 12, "start", FAINT)
    drawing.save(path)


def draw_ring(program, path):
    """Each rank's four chunks before the first step and after each step."""
    plan = print_plan(program, "all-reduce", "--plan", "ring", "--ranks", str(DEVICES), "--elements",
                      str(DEVICES))
    steps = []
    for line in plan.splitlines():
        if line.startswith("step"):
            steps.append([])
        transfer = re.match(r"  rank (\d+) -> rank (\d+)  (add|copy) +\[(\d+), \d+\)", line)
        if transfer:
            sender, receiver, kind, chunk = transfer.groups()
            steps[-1].append((int(sender), int(receiver), kind, int(chunk)))
    holds = [[{rank} for _ in range(DEVICES)] for rank in range(DEVICES)]
    drawing = Drawing(960, 404)
    drawing.text(20, 28, f"The ring all-reduce on {DEVICES} ranks", 16, "start", weight="bold")
    drawing.text(20, 47, "Each rank sends one chunk to the next rank in every step. A cell lists the "
                 "ranks whose values it holds; bold frames mark what has just arrived.", 12, "start",
                 FAINT)

    def draw_frame(number, arrived):
        left, top = 24 + (number % 4) * 234, 66 + (number // 4) * 178
        title = "before" if number == 0 else f"step {number}: " + (
            "add" if number < DEVICES else "copy")
        drawing.text(left, top + 10, title, 13, "start", weight="bold")
        for rank in range(DEVICES):
            y = top + 20 + rank * 32
            drawing.text(left + 8, y + 17, str(rank), 12)
            for chunk in range(DEVICES):
                held = sorted(holds[rank][chunk])
                complete = len(held) == DEVICES
                drawing.box(left + 20 + chunk * 48, y, 46, 26,
                            "sum" if complete else "+".join(map(str, held)),
                            COLOURS[2] if complete else COLOURS[0],
                            INK if (rank, chunk) in arrived else FAINT,
                            0.5 if complete else 0.14 * len(held), 11)
    draw_frame(0, set())
    for number, transfers in enumerate(steps, 1):
        before = [[set(held) for held in rank] for rank in holds]
        for sender, receiver, kind, chunk in transfers:
            value = before[sender][chunk]
            holds[receiver][chunk] = value | before[receiver][chunk] if kind == "add" else set(value)
        draw_frame(number, {(receiver, chunk) for _, receiver, _, chunk in transfers})
    x, y = 24 + 3 * 234, 66 + 178 + 60
    drawing.text(x, y, f"2({DEVICES} - 1) = {len(steps)} steps;", 13, "start")
    drawing.text(x, y + 20, f"each rank sends 2({DEVICES} - 1)/{DEVICES} buffers.", 13, "start")
    drawing.text(x, y + 40, "It is less than two,", 13, "start")
    drawing.text(x, y + 60, "however many ranks.", 13, "start")
    drawing.save(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--program", default=root / "build/release/bin/lockstep")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=root / "docs/images")
    flags = parser.parse_args()
    flags.folder.mkdir(parents=True, exist_ok=True)
    draw_steps(flags.program, flags.folder / "dp_and_ddp.svg")
    draw_buckets(flags.program, flags.folder / "buckets.svg")
    draw_ring(flags.program, flags.folder / "ring.svg")


if __name__ == "__main__":
    main()
