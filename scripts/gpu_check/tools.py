"""tools, at most 8 minutes: compute-sanitizer over the hand-written kernels, ncu over one captured step."""

import csv
import shutil

import bench
from stage import Failed, Skipped

SECONDS = 480
METRICS = {"gpu__time_duration.sum": "ns", "dram__bytes.sum": "B"}
SCALE = {
    "ns": 1,
    "nsecond": 1,
    "us": 1e3,
    "usecond": 1e3,
    "ms": 1e6,
    "msecond": 1e6,
    "byte": 1,
    "Kbyte": 1e3,
    "Mbyte": 1e6,
    "Gbyte": 1e9,
}


def tool(name):
    """A tool of the CUDA toolkit, which is often not in PATH."""
    path = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if not path:
        raise Skipped(f"{name} is neither in PATH nor in /usr/local/cuda/bin")
    return path


def sanitizer(stage, kind):
    """Of our own kernels: cuBLAS's are left out, since memcheck reports reads in them that are none of ours."""
    program = tool("compute-sanitizer")
    groups = stage.check.programs.groups("cuda_kernels_tests$")
    if not groups:
        raise Failed("the build has no cuda_kernels_tests")
    group = groups[0]
    tests = group["tests"][: stage.check.sizes.tests_of_each]
    stage.passes(
        f"hand-written kernels under compute-sanitizer {kind}",
        [
            program,
            "--tool",
            kind,
            "--error-exitcode",
            1,
            stage.check.programs.bin / group["program"],
            "--gtest_filter=" + ":".join(tests),
        ],
        180,
        group["environment"],
    )


def captured_step(stage, batch, precision):
    """The nodes of one captured step, by ncu, with time and bytes of each."""
    net = stage.check.sizes.net
    step = bench.step(stage, precision, batch, net, graph=True)  # tunes, and says how many nodes there are
    nodes = step["graph_nodes"]
    outcome = stage.succeed(
        f"ncu_{precision}_{batch}",
        [
            tool("ncu"),
            "--graph-profiling",
            "node",
            "--csv",
            "--page",
            "raw",
            "--metrics",
            ",".join(METRICS),
            "--launch-count",
            10 * nodes,
            stage.check.lockstep,
            "bench",
            "step",
            "--device",
            "cuda",
            "--graph",
            "--matmul-precision",
            precision,
            "--batch",
            batch,
            "--model",
            bench.mlp(net),
            "--seconds",
            "0.001",
        ],
        120,
    )
    rows = profiled(outcome.text)[-nodes:]
    total = 0.0
    for number, row in enumerate(rows, 1):
        nanoseconds, num_bytes = (row[metric] for metric in METRICS)
        total += nanoseconds
        stage.line(
            f"node {number} of a step, batch {batch}, {precision}",
            "measured",
            figure=nanoseconds / 1e3,
            unit="us",
            detail=f"{num_bytes / 1e3:.4g} kB, {row['Kernel Name'][:100]}",
        )
    stage.line(
        f"{len(rows)} of {nodes} nodes of a step one by one, batch {batch}, {precision}",
        "measured",
        figure=total / 1e3,
        unit="us",
        detail=f"as a graph {step['us']:.2f} us",
    )


def profiled(text):
    """ncu's table, `--csv --page raw`: names, then units, then a row per kernel; numbers in ns and bytes."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise Failed("ncu printed no table")
    rows = list(csv.DictReader(line for line in lines[begin:] if line.startswith('"')))
    if len(rows) < 2:
        raise Failed("ncu profiled no kernel")
    units = rows[0]
    for row in rows[1:]:
        for metric in METRICS:
            row[metric] = float(row[metric].replace(",", "")) * SCALE[units[metric]]
    return rows[1:]


def run(stage):
    for kind in ("memcheck", "racecheck"):
        stage.part(f"compute-sanitizer {kind}", sanitizer, kind)
    batches = stage.check.sizes.first_batches
    for batch in (batches[0], batches[-1]) if len(batches) > 1 else batches:
        for precision in ("highest", "high"):
            stage.part(f"ncu over one step, batch {batch}, {precision}", captured_step, batch, precision)
