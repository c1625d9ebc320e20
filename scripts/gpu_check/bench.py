"""Measurements by the program lockstep itself, read from the files that it writes."""

import json
from dataclasses import dataclass

from stage import Failed, Skipped


@dataclass(frozen=True)
class Sizes:
    """How large the nets are, and how long each is measured."""

    net: tuple = (784, 256, 128, 10)
    batches: tuple = (64, 256, 1024, 8192)
    first_batches: tuple = (64, 1024, 8192)
    seconds: float = 0.4
    wide: tuple = (784, 4096, 4096, 4096, 10)
    wide_batch: int = 4096
    sgemm: int = 8192
    epoch_rows: int = 60000
    epoch_batch: int = 1024
    ddp_rows: int = 65536
    ddp_batch: int = 8192
    digits_epochs: int = 3
    all_reduce: str = "1M"
    compare_net: str = "mlp:64-1024-1024-10"
    gradients: tuple = ()  # flags of check-gradients
    tests_of_each: int | None = None  # None: all


# The emulated GPU is thousands of times slower than a real one.
REHEARSAL = Sizes(
    net=(12, 8, 4),
    batches=(8,),
    first_batches=(8,),
    seconds=0.01,
    wide=(8, 16, 4),
    wide_batch=8,
    sgemm=32,
    epoch_rows=64,
    epoch_batch=16,
    ddp_rows=64,
    ddp_batch=16,
    digits_epochs=1,
    all_reduce="1K",
    compare_net="mlp:64-16-10",
    gradients=("--model", "mlp:31-33-7:gelu", "--batch", "1,33"),
    tests_of_each=1,
)


TUNING_IS_LOGGED = {"LOCKSTEP_LOG": "debug"}  # for products.py


def mlp(sizes):
    return "mlp:" + "-".join(map(str, sizes))


def step(stage, precision, batch, net, graph, limit=25):
    """The row of `lockstep bench step`, with its time in "us"."""
    name = f"bench_step_{precision}_{batch}_{net[1]}" + ("_graph" if graph else "")
    path = stage.file(name).with_suffix(".json")
    command = [
        stage.check.lockstep,
        "bench",
        "step",
        "--device",
        "cuda",
        "--matmul-precision",
        precision,
        "--batch",
        batch,
        "--model",
        mlp(net),
        "--seconds",
        stage.check.sizes.seconds,
        "--json",
        path,
    ]
    stage.succeed(name, command + ["--graph"] * graph, limit, TUNING_IS_LOGGED)
    row = json.loads(path.read_text())["rows"][0]
    return {**row, "us": 1e6 * row["median_step_seconds"]}


def train(stage, name, *flags, limit=40):
    """The row of `lockstep train` on the GPU, with the whole run file in "file"."""
    path = stage.file(name).with_suffix(".json")
    command = [stage.check.lockstep, "train", "--device", "cuda", "--json", path, *flags]
    stage.succeed(name, command, limit, TUNING_IS_LOGGED)
    file = json.loads(path.read_text())
    return {**file["rows"][0], "file": file}


def ddp_flags(sizes, epochs):
    """A training whose batches are all full, so that every step is the same."""
    return [
        "--dataset",
        f"synthetic:{sizes.ddp_rows}x{sizes.net[0]}x{sizes.net[-1]}",
        "--model",
        mlp(sizes.net),
        "--batch",
        sizes.ddp_batch,
        "--epochs",
        epochs,
        "--lr",
        0.01,
        "--virtual-devices",
        "cuda:0*4",
    ]


def digits_flags(sizes):
    """1500 rows, whose last batch is smaller than the others."""
    return ["--dataset", "digits", "--model", "mlp:64-256-10", "--batch", 64, "--epochs", sizes.digits_epochs]


FOUR_RANKS = ["--parallel", "ddp", "--devices", 4]


def floor(stage, *arguments, limit=40):
    """The words after the first of what gpu_floor prints, as numbers."""
    program = stage.check.programs.bin / "gpu_floor"
    if not program.exists():
        raise Skipped("gpu_floor was not built")
    outcome = stage.succeed("gpu_floor_" + "_".join(map(str, arguments[:3])), [program, *arguments], limit)
    words = outcome.text.split()
    if not words or words[0] != arguments[0]:
        raise Failed(f"gpu_floor printed '{outcome.text[:60]}'")
    return [float(word) for word in words[1:]]


def peer_step(stage, precision, batch, net):
    """PyTorch's {"eager": us, "graph": us} of the same step. Raises Skipped without PyTorch."""
    return stage.check.peer.ask(
        {
            "measure": "step",
            "precision": precision,
            "batch": batch,
            "sizes": net,
            "seconds": stage.check.sizes.seconds,
        },
        min(40, stage.left()),
    )
