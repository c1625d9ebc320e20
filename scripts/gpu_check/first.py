"""first, at most 3 minutes: does it run, is it right, how fast is it; the lines that say most come first."""

import os

import bench
from gtests import run_groups
from products import show_timed
from stage import Failed

SECONDS = 180
SECONDS_OF_TESTS = 60
SECONDS_A_TEST = 15
# The programs in which a fault of the GPU code shows first, by what they lie nearest to.
NEAREST = r"cuda_runtime_tests|cuda_kernels_tests|cuda_products_tests"
SAME_LOSS = 1e-5  # relative


def devices(stage):
    command = [stage.check.lockstep, "devices"]
    outcome = stage.passes("lockstep devices", command, 20)
    print(outcome.text, end="")


def cell(stage, precision, batch, graph):
    row = bench.step(stage, precision, batch, stage.check.sizes.net, graph)
    stage.cells[precision, batch, graph] = row["us"]
    nodes = f", {row['graph_nodes']} nodes" if graph else ""
    stage.line(
        cell_name(precision, batch, graph),
        "measured",
        figure=row["us"],
        unit="us",
        detail=f"{row['samples_per_second']:.3g} rows/s, {row['gflops']:.4g} GFLOP/s{nodes}",
    )


def cell_name(precision, batch, graph):
    return f"bench step, batch {batch}, {precision}, {'graph' if graph else 'eager'}"


def beside_torch(stage, precision, batch):
    theirs = bench.peer_step(stage, precision, batch, stage.check.sizes.net)
    for graph, kind in ((True, "graph"), (False, "eager")):
        ours = stage.cells.get((precision, batch, graph))
        if ours:
            stage.line(
                f"PyTorch {kind} / ours, batch {batch}, {precision}",
                "measured",
                figure=theirs[kind] / ours,
                unit="x",
                detail=f"{theirs[kind]:.1f} us / {ours:.1f} us",
            )


def four_devices(stage, kind, flags, *extra):
    """DDP on 4 logical devices has the loss of one device."""
    one = stage.losses.get(kind)
    if one is None:
        one = stage.losses[kind] = bench.train(stage, f"one_device_{kind}", *flags)
    name = f"DDP on 4 logical devices, {kind}, {'graph' if extra else 'eager'}"
    row = bench.train(stage, name, *flags, *bench.FOUR_RANKS, *extra)
    difference = abs(row["final_loss"] - one["final_loss"]) / abs(one["final_loss"])
    stage.line(
        f"{name}: loss as one device's",
        "ok" if difference <= SAME_LOSS else "FAILED",
        figure=difference,
        asked=f"<= {SAME_LOSS:g}",
        detail=f"{row['final_loss']:.8g} and {one['final_loss']:.8g}; step {1e6 * row['step_seconds']:.4g} us, "
        f"one device {1e6 * one['step_seconds']:.4g} us",
    )


def losses(stage):
    """With full batches only, then with a smaller one at the end of every epoch, which is no part of the graph."""
    stage.losses = {}
    sizes = stage.check.sizes
    full = bench.ddp_flags(sizes, 3)
    partial = [*bench.digits_flags(sizes), "--virtual-devices", "cuda:0*4"]
    for kind, flags in (("full batches", full), ("a partial last batch", partial)):
        for extra in ([], ["--graph"]):
            name = f"DDP on 4 logical devices, {kind}, {'graph' if extra else 'eager'}"
            stage.part(name, four_devices, kind, flags, *extra)


def nearest_tests(stage):
    groups = stage.check.programs.groups(NEAREST)
    if not groups:
        raise Failed("the build has none of these tests")
    run_groups(stage, groups, min(3, os.cpu_count() or 1), SECONDS_OF_TESTS, SECONDS_A_TEST)


def run(stage):
    sizes = stage.check.sizes
    stage.cells = {}
    stage.part("lockstep devices", devices)
    batch = sizes.first_batches[0]
    for graph in (False, True):  # whether anything works at all
        stage.part(cell_name("highest", batch, graph), cell, "highest", batch, graph)
    stage.part("runtime, kernel and product tests", nearest_tests)
    stage.part("DDP on 4 logical devices", losses)
    for batch in sizes.first_batches:
        for precision in ("highest", "high"):
            for graph in (True, False):
                if (precision, batch, graph) not in stage.cells:
                    stage.part(cell_name(precision, batch, graph), cell, precision, batch, graph)
    stage.part("algorithms of cuBLASLt", show_timed)
    for batch in sizes.first_batches:
        for precision in ("highest", "high"):
            stage.part(f"PyTorch / ours, batch {batch}, {precision}", beside_torch, precision, batch)
