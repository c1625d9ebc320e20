"""Machines and how fast they train: the DGX A100, DataParallel against DDP, break-even, feeding, scaling."""

import re

from .kit import Drawing, picture
from .sources import expected, find, find_all, plan, topology


@picture
def machine():
    figures = topology("dgx-a100")
    rate = {(link["from"], link["to"]): link["gb_per_s"] for link in figures["links"]}
    gpus = [node["name"] for node in figures["nodes"] if node["kind"] == "gpu"]
    switch_of = {link["from"]: link["to"] for link in figures["links"] if link["kind"] == "pcie"}
    device = figures["device"]
    drawing = Drawing(
        400,
        "A DGX A100",
        "Eight GPUs reach each other at full speed through NVSwitch; CPUs are behind the slower PCIe.",
        f"Eight {device['name']} GPUs, each with {device['memory_gb']} GB, on an NVSwitch and on PCIe switches.",
    )
    centres = {gpu: 66 + number * 81 for number, gpu in enumerate(gpus)}
    drawing.box(30, 24, 640, 34, "NVSwitch", "plain", 14, "600")
    for number, (gpu, x) in enumerate(centres.items()):
        drawing.parts.append(f'<path d="M{x} 58V120" class="go" style="stroke-width:5"/>')
        drawing.box(x - 34, 120, 68, 54, f"GPU {number}\n{device['memory_gb']} GB", "soft", 12, corner=6)
        drawing.line(x, 174, x, 200, "go")
    switches = sorted(set(switch_of[gpu] for gpu in gpus))
    middle = {}
    for name in switches:
        below = [centres[gpu] for gpu in gpus if switch_of[gpu] == name]
        middle[name] = sum(below) / len(below)
        drawing.box(min(below) - 34, 200, max(below) - min(below) + 68, 26, "PCIe switch", "soft", 12)
    cpus = [node["name"] for node in figures["nodes"] if node["kind"] == "cpu"]
    for number, cpu in enumerate(cpus):
        above = [middle[name] for name in switches if switch_of[name] == cpu]
        for x in above:
            drawing.line(x, 226, x, 262, "go")
        drawing.box(
            min(above) - 50, 262, max(above) - min(above) + 100, 40, f"CPU {number} and its memory", "plain", 13
        )
        middle[cpu] = (min(above) - 50, max(above) + 50)
    drawing.line(middle["cpu0"][1], 282, middle["cpu1"][0], 282, "go")
    drawing.text(106.5, 94, f"{rate[('gpu0', 'nvswitch')]} GB/s", 12, weight="600")
    drawing.text(147, 246, f"{rate[('plx0', 'cpu0')]} GB/s", 12)
    drawing.text(350, 274, f"{rate[('cpu0', 'cpu1')]}", 12)
    drawing.text(350, 298, "GB/s", 12)
    drawing.text(
        350,
        340,
        f"{device['name']}: {device['tflops']} TFLOP/s in float32, memory {device['memory_gb_per_s']} GB/s, "
        f"a kernel launch {device['launch_us']} µs",
        12,
    )
    return drawing


@picture
def dp_and_ddp():
    rows = re.findall(r"device \d+: rows \[(\d+), (\d+)\)", plan("scatter", "--rows", 64, "--devices", 4))
    drawing = Drawing(
        400,
        "One step of DataParallel, and one of DDP",
        "DataParallel's device 0 does more than the others; DDP's ranks all do the same.",
    )
    for x0, title, name in ((20, "DataParallel", "cpu:"), (366, "DistributedDataParallel", "rank ")):
        drawing.text(x0 + 156, 32, title, 15, weight="600")
        for device in range(4):
            drawing.chip(x0 + device * 80 + 8, 46, f"{name}{device}", device, 56)

    def put(x0, device, stage, words, kind="soft"):
        drawing.box(x0 + device * 80, 74 + stage * 50, 72, 28, words, kind, 12)

    def fan(x0, stage, inwards):
        """Arrows between device 0 in a stage and the others."""
        for device in range(1, 4):
            here, there = (x0 + 36 + 8 * device, 102 + stage * 50), (x0 + device * 80 + 36, 122 + stage * 50)
            drawing.arrow(*((there[0], here[1]), (here[0], there[1])) if inwards else (here, there))

    put(20, 0, 0, "batch, W", "p")
    fan(20, 0, inwards=False)
    for device, (begin, end) in enumerate(rows):
        for x0, first in ((20, 1), (366, 0)):
            put(x0, device, first, f"{begin} … {int(end) - 1}", f"r{device}")
            put(x0, device, first + 1, "forward", "a")
        put(20, device, 4, "backward", "g")
        put(366, device, 2, "backward", "g")
        drawing.arrow((366 + device * 80 + 36, 202), (366 + device * 80 + 36, 222))
        drawing.arrow((366 + device * 80 + 36, 252), (366 + device * 80 + 36, 272))
        put(366, device, 4, "update", "p")
    fan(20, 2, inwards=True)
    put(20, 0, 3, "loss", "a")
    fan(20, 3, inwards=False)
    fan(20, 4, inwards=True)
    put(20, 0, 5, "update", "p")
    drawing.box(366, 224, 312, 28, "all-reduce, while backward goes on", "g", 12)
    for stage, words in ((0, "scatter, replicate"), (3, "gather"), (5, "gradients are summed on cpu:0")):
        drawing.text(102, 92 + stage * 50, words, 12, "start", "faint")
    return drawing


@picture
def break_even():
    text = expected("find_break_even")
    rows = find_all(r"^ +(\d+) +([12]) +([\d.]+) us +([\d.]+) us +([\d.]+) us +([\d.]+) us$", text)
    even = int(find(r"faster from (\d+) rows on", text)[0])
    alone = {int(row[0]): float(row[5]) for row in rows if row[1] == "1"}
    drawing = Drawing(
        380,
        "When two devices pay off",
        "The all-reduce costs the same for any batch; with few rows, two devices save less than that.",
        f"Bars of the step's time on one and two devices, for each batch; two are faster from {even} rows on.",
    )
    bottom, left = 290, 70
    scale = 218 / max(float(row[5]) / alone[int(row[0])] for row in rows)
    for number, batch in enumerate(alone):
        x = left + number * 154
        for _, devices, kernels, exposed, other, step in (row for row in rows if int(row[0]) == batch):
            bar, top = x + (52 if devices == "2" else 0), bottom
            for kind, value in (("a", kernels), ("soft", other), ("g", exposed)):
                height = float(value) / alone[batch] * scale
                if height > 0.5:
                    top -= height
                    drawing.box(bar, top, 44, height, "", kind, corner=1)
            drawing.text(bar + 22, top - 6, f"{float(step):.0f} µs", 11)
            drawing.text(bar + 22, bottom + 16, devices, 12)
        drawing.text(x + 48, bottom + 36, f"{batch} rows", 13, weight="600")
    drawing.line(left - 14, bottom - scale, 682, bottom - scale, "slow")
    drawing.text(left - 18, bottom - scale + 4, "1 ×", 12, "end")
    drawing.text(left - 18, bottom + 16, "GPUs", 11, "end", "faint")
    drawing.legend(left, 32, [("a", "kernels"), ("g", "exposed all-reduce"), ("soft", "other")])
    batches = list(alone)
    after = next((i for i, batch in enumerate(batches) if batch > even), len(batches))
    x = left + after * 154 - 26
    drawing.line(x, 56, x, bottom + 40, "good")
    drawing.text(x, 52, f"break-even: {even} rows", 12, kind="yes", weight="600")
    return drawing


@picture
def feed():
    text = expected("feed_devices")
    rows = find_all(r"^ +(\d) +([\d.]+) us +([\d.]+) us +([\d.]+) us +([\d.]+) us +([\d.]+) s +(\d+) %$", text)
    drawing = Drawing(
        300,
        "Device 0 feeds all others",
        "More devices shorten the kernels, but device 0 must feed each of them.",
        "Bars of a DataParallel step's time: kernels, copies out, gradients back.",
    )
    left, longest = 120, max(float(row[4]) for row in rows)
    for number, (devices, kernels, copies, gradients, step, _, busy) in enumerate(rows):
        y, x = 46 + number * 52, left
        drawing.text(left - 10, y + 21, f"{devices} device" + ("s" if devices != "1" else ""), 13, "end")
        for kind, value in (("p", copies), ("a", kernels), ("g", gradients)):
            width = float(value) / longest * 440
            if width > 0.5:
                drawing.box(x, y, width, 32, "", kind, corner=1)
                x += width
        drawing.text(x + 8, y + 14, f"{float(step):.0f} µs", 12, "start")
        drawing.text(x + 8, y + 29, f"busy {busy} %", 12, "start", "faint")
    drawing.legend(left, 28, [("p", "copies from device 0"), ("a", "kernels"), ("g", "gradients to device 0")])
    return drawing


@picture
def weak_strong():
    text = expected("scale_batch", "double_batch")
    rows = find_all(r"^ +(\d) +[\d.]+ ms +[\d.]+ s +([\d.]+)x +[\d.]+ ms +[\d.]+ s +([\d.]+)x$", text)
    batch = int(find(r"(\d+) rows for all", text)[0])
    drawing = Drawing(
        360,
        "One batch for all, and one for each",
        "Devices that keep a full batch each stay busy; a shared batch leaves them little to do.",
    )
    drawing.text(180, 32, f"{batch} rows for all", 14, weight="600")
    drawing.text(520, 32, f"{batch} rows for each", 14, weight="600")
    for number, (devices, strong, weak) in enumerate(rows):
        y = 54 + number * 64
        for x0, share, gain in ((40, 1 / int(devices), strong), (380, 1, weak)):
            for device in range(int(devices)):
                x = x0 + device * 24
                drawing.box(x, y, 20, 44, "", "ghost")
                drawing.box(x, y + 44 * (1 - share), 20, 44 * share, "", f"r{device % 4}", corner=1)
            drawing.text(x0 + 206, y + 20, f"{gain} ×", 16, "start", weight="600")
            drawing.text(x0 + 206, y + 38, f"{devices} GPU" + ("s" if devices != "1" else ""), 12, "start", "faint")
    drawing.text(350, 318, "filled: a device's rows; × : speed-up over one GPU", 12, kind="faint")
    return drawing


@picture
def twice_batch():
    rows = find_all(r"^(\S.*?)  +(\d) +(\d+) +([\d.]+) +(\d+) +([\d.]+) +([\d.]+)$", expected("double_batch"))
    drawing = Drawing(
        94 + 40 * len(rows),
        "Twice the batch, one change at a time",
        "More devices change nothing; half as many steps cost the most accuracy.",
        "Test accuracy of runs that differ in one thing: " + "; ".join(f"{row[0]} {row[5]}" for row in rows),
    )
    left, width = 236, 380
    for number, (name, _, _, _, steps, accuracy, spread) in enumerate(rows):
        y, end, error = 50 + number * 40, float(accuracy) * width, float(spread) * width
        drawing.text(left - 84, y + 17, name.split(" (")[0].split(",")[0], 13, "end", weight="600")
        drawing.text(left - 12, y + 17, f"{steps} steps", 12, "end", "faint")
        drawing.box(left, y, end, 24, "", "soft", corner=1)
        drawing.line(left + end - error, y + 12, left + end + error, y + 12, "go")
        for side in (-1, 1):
            drawing.line(left + end + side * error, y + 6, left + end + side * error, y + 18, "go")
        drawing.text(left + end + error + 8, y + 17, f"{float(accuracy):.2f}", 13, "start")
    drawing.text(left - 84, 34, "changed", 12, "end", "faint")
    drawing.text(left, 34, "test accuracy, and its spread over ten runs", 12, "start", "faint")
    return drawing


@picture
def slow_motion():
    factor = find_all(r"^during backward .* 1 : (\d+)$", expected("watch_step"))[0]
    drawing = Drawing(
        290, "Slow motion", "A CPU device really computes, then waits until the GPU would be done, times a factor."
    )
    left, parts = 150, (
        (70, 190),
        (40, 110),
        (90, 190),
    )  # what a CPU computes, and what the GPU takes, times the factor
    drawing.text(left - 16, 72, "a CPU device", 13, "end", weight="600")
    drawing.text(left - 16, 184, "a GPU", 13, "end", weight="600")
    x = left
    for compute, whole in parts:
        drawing.box(x, 52, compute, 34, "computes" if compute > 60 else "", "a", 11)
        drawing.box(x + compute, 52, whole - compute, 34, "waits", "ghost", 12)
        x += whole
    x = left
    for _, whole in parts:
        drawing.box(x, 164, whole / 10, 34, "", "a", corner=1)
        drawing.arrow((left + (x - left) * 10 + whole / 2, 92), (x + whole / 20, 158), kind="slow")
        x += whole / 10
    drawing.text(left + 260, 150, f"÷ {factor}", 16, weight="600")
    drawing.text(left + 70, 186, "all times are divided by the factor", 12, "start")
    drawing.text(left, 236, "the weights are those of a normal run, to the bit", 12, "start", "faint")
    return drawing
