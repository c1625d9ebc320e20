"""What the stages are made of: first, suite and targets."""

import json
import os
import re
import shutil
from dataclasses import dataclass

import machine
from stage import Skipped

SAME_LOSS = 1e-5  # relative
KINDS = ("eager", "graph")
FOUR_RANKS = ["--parallel", "ddp", "--devices", 4, "--virtual-devices", "cuda:0*4"]


@dataclass(frozen=True)
class Sizes:
    """How large the nets are, and how long each is measured."""

    net: tuple = (784, 256, 128, 10)
    batches: tuple = (64, 1024, 8192)
    seconds: float = 0.4
    wide: tuple = (784, 4096, 4096, 4096, 10)
    wide_batch: int = 4096
    sgemm: int = 8192
    data: str = "synthetic:65536x784x10"
    all_reduce: str = "1M"
    compare: tuple = ("--model", "mlp:64-1024-1024-10", "--epochs", 2)
    # What PyTorch is compared on: model, rows, batches, precisions; and how many times as fast its graph, and its
    # compiled net, if that is asked, may not be less than ours.
    table: tuple = (("lenet", "synthetic:2048x28x28x1x10", (256, 4096), ("fp32", "tf32"), 1, None),
                    ("resnet18", "synthetic:2048x28x28x1x10", (64, 256, 1024), ("fp32", "tf32", "bf16"), 0.75, None),
                    ("gpt:4-4-128-64", "embedded-text", (64,), ("fp32", "tf32"), 1.2, None),
                    ("gpt2", "", (8,), ("fp32", "tf32", "bf16"), 1, 0.8))  # fmt: skip
    models: tuple = (("LeNet", "lenet", "digits", 64), ("a small GPT", "gpt:2-2-64-32", "embedded-text", 64))
    convolutions: tuple = ("resnet18", 256, "tf32", "synthetic:2048x28x28x1x10")
    counts: str = "1,2,4,8"
    lessons: str = r"\d\d_"


# The emulated GPU is thousands of times slower than a real one.
REHEARSAL = Sizes(net=(12, 8, 4), batches=(8,), seconds=0.01, wide=(8, 16, 4), wide_batch=8, sgemm=32,
                  table=(("lenet", "synthetic:8x28x28x1x10", (2,), ("bf16",), 1, None), ("gpt:1-1-8-8", "", (2,), ("bf16",), 1, 1)),
                  models=(("LeNet", "cnn:2c3-p2-10", "digits", 8), ("a small GPT", "gpt:1-1-8-8", "embedded-text", 8)),
                  convolutions=("lenet", 2, "tf32", "synthetic:8x28x28x1x10"),
                  data="synthetic:64x12x4", all_reduce="1K",
                  compare=("--model", "mlp:64-16-10", "--steps", 4), counts="1,2", lessons="01_")  # fmt: skip


def mlp(sizes):
    return "mlp:" + "-".join(map(str, sizes))


@dataclass(frozen=True)
class Step:
    """A training step, as `lockstep bench step` and share/torch_cuda.py measure it."""

    model: str
    batch: int
    precision: str = "fp32"
    data: str = ""  # --dataset

    def name(self):
        return f"{self.model}, batch {self.batch}, {self.precision}"

    def words(self):
        words = ["--model", self.model, "--batch", self.batch, "--precision", self.precision]
        return words + (["--dataset", self.data] if self.data else [])

    def question(self, row):
        """row: what ours measured, which says how large images and vocabularies are."""
        image = row["row_shape"] if len(row["row_shape"]) == 3 else []
        return {"model": self.model, "batch": self.batch, "precision": self.precision, "row": image,
                "classes": row["num_classes"]}  # fmt: skip


def speed(row):
    """Of a step: its products, and how near it comes to what the card's data sheet allows."""
    least = row.get("least_seconds")
    share = f", {100 * least / row['median_step_seconds']:.3g} % of the data sheet's speed" if least else ""
    return f"{row['gflops']:.4g} GFLOP/s{share}"


def measure(stage, steps, step, graph, environment=None):
    """A line of `lockstep bench step`; its row goes to `steps`."""
    name = f"step of {step.name()}, {KINDS[graph]}"
    words = [*step.words(), "--seconds", stage.check.sizes.seconds, *["--graph"] * graph]
    (row,) = stage.rows(name, "bench", "step", *words, environment=environment)
    stage.line(name, "measured", figure=1e6 * row["median_step_seconds"], unit="us", detail=speed(row))
    steps.setdefault(step, {})[KINDS[graph]] = row


def beside_patches(stage, steps):
    """The graphs of nets with convolutions again, without cuDNN."""
    ways = re.findall(r"^convolutions +(.*)", stage.succeed("lockstep env", [stage.check.lockstep, "env"]), re.M)
    stage.line("convolutions", "ok" if ways and ways[0].startswith("cuDNN") else "skipped", detail=" ".join(ways))
    if not ways or not ways[0].startswith("cuDNN"):
        return
    for step, rows in steps.items():
        stage.part(f"{step.name()}: without cuDNN", without_cudnn, stage, step, rows["graph"])


def without_cudnn(stage, step, row):
    name = f"step of {step.name()}, graph, without cuDNN"
    words = [*step.words(), "--seconds", stage.check.sizes.seconds, "--graph"]
    (patches,) = stage.rows(name, "bench", "step", *words, environment={"LOCKSTEP_CUDNN": "off"})
    ours, others = (1e6 * one["median_step_seconds"] for one in (row, patches))
    stage.line(name, "measured", figure=others, unit="us", detail=speed(patches))
    detail = f"{others:.1f} us / {ours:.1f} us"
    stage.judge(f"{step.name()}: products of patches / cuDNN", others / ours, ">=", 1, "x", detail)


def beside_torch(stage, steps, least, least_compiled=None):
    """PyTorch's times of the same steps, in one process. least: of the ratio in a graph."""
    python, device = machine.torch_python(), "cpu" if stage.check.is_emulated else "cuda"
    if not python:
        raise Skipped("no Python with PyTorch was found; LOCKSTEP_TORCH_PYTHON names one")
    kinds = ["eager", "graph"] + (["compiled"] if least_compiled else [])
    questions = [
        json.dumps({**step.question(next(iter(rows.values()))), "seconds": stage.check.sizes.seconds, "kinds": kinds})
        for step, rows in steps.items()
    ]
    command = [python, stage.check.folder / "share/torch_cuda.py", device]
    outcome = stage.run("PyTorch", command, stage.left(), given="\n".join(questions))
    version, *answers = [json.loads(line) for line in outcome.text.splitlines() if line.startswith("{")] or [{}]
    if "torch" not in version:
        raise Skipped(version.get("problem") or f"PyTorch does not start: {outcome.problem}")
    stage.line("PyTorch", "measured", detail=f"{version['torch']} on {version['device']}")
    answers += [{"problem": outcome.problem or "no answer"}] * len(questions)
    for (step, rows), answer in zip(steps.items(), answers):
        for kind in kinds:
            ours = "ours" if kind in rows else "our graph"
            row = rows.get(kind) or rows.get("graph")
            if row:
                limit = {"graph": least, "compiled": least_compiled}.get(kind, 1)
                compare(stage, f"{step.name()}: PyTorch {kind} / {ours}", kind, row, answer, limit)


def compare(stage, name, kind, row, answer, least):
    if kind not in answer:
        return stage.line(name, "FAILED", detail=answer.get("problem", "no answer"))
    us = 1e6 * row["median_step_seconds"]
    stage.judge(name, answer[kind] / us, ">=", least, "x", f"{answer[kind]:.1f} us / {us:.1f} us")


# --- first ---


def tests(stage, pattern, seconds):
    """The parts that run the tests of the programs whose names match. Timing products says nothing in most of them."""
    parts = []
    for program in stage.check.names:
        if program.endswith("_tests") and re.match(pattern, program):
            tuning = "on" if program.startswith("cuda_products") else "off"
            # No test may depend on what an earlier one has timed.
            environment = {"LOCKSTEP_TEST_DEVICE": "cuda", "LOCKSTEP_TUNING": tuning, "XDG_CACHE_HOME": "/dev/null"}
            parts.append((program, stage.tests, program, seconds, environment))
    return parts


def same_loss(stage, kind, *flags):
    """DDP on 4 logical devices has the loss of one device."""
    flags = ["--lr", 0.01, *flags]
    (one,) = stage.rows(f"one device, {kind}", "train", *flags)
    for graph in ([], ["--graph"]):
        name = f"DDP on 4 logical devices, {kind}, {KINDS[bool(graph)]}: loss as one device's"
        (row,) = stage.rows(name, "train", *flags, *FOUR_RANKS, *graph)
        difference = abs(row["final_loss"] - one["final_loss"]) / abs(one["final_loss"])
        verdict = "ok" if difference <= SAME_LOSS else "FAILED"
        times = [f"{1e6 * of['step_seconds']:.4g}" for of in (row, one)]
        detail = f"{row['final_loss']:.8g} and {one['final_loss']:.8g}; step {' us, of one device '.join(times)} us"
        stage.line(name, verdict, figure=difference, asked=f"<= {SAME_LOSS:g}", detail=detail)


def first(stage):
    sizes, steps = stage.check.sizes, {}
    verdict, detail = machine.versions(stage.check.cuda)
    stage.line("driver, CUDA and cuBLASLt fit", "skipped" if stage.check.is_emulated else verdict, detail=detail)
    stage.part("lockstep devices", stage.passes, "lockstep devices", stage.check.lockstep, "devices")
    for batch in sizes.batches:
        for precision in ("fp32", "tf32"):
            for graph in (0, 1):
                stage.part("step", measure, stage, steps, Step(mlp(sizes.net), batch, precision), graph)
            if (batch, precision) == (sizes.batches[0], "fp32"):  # something works: is it right?
                stage.beside(tests(stage, "cuda_runtime_tests|kernels_tests|cuda_products_tests", 40))
                for kind, data, net, size in (("full batches", sizes.data, sizes.net, sizes.wide_batch),
                                              ("a partial last batch", "digits", (64, 256, 10), 64)):  # fmt: skip
                    flags = ["--dataset", data, "--model", mlp(net), "--batch", size, "--epochs", 3]
                    stage.part(f"DDP, {kind}", same_loss, stage, kind, *flags)
                for kind, model, data, size in sizes.models:
                    flags = ["--dataset", data, "--model", model, "--batch", size, "--steps", 20]
                    stage.part(f"DDP, {kind}", same_loss, stage, kind, *flags)
    stage.part("PyTorch", beside_torch, stage, steps, 2)
    stage.part("convolutions", convolutions, stage)


def convolutions(stage):
    """One net of them, with cuDNN and without. The log of the first names what cuDNN does not support."""
    step, steps = Step(*stage.check.sizes.convolutions), {}
    measure(stage, steps, step, 1, {"LOCKSTEP_LOG": "debug"})
    beside_patches(stage, steps)


# --- targets ---


def wide_net(stage):
    sizes, steps = stage.check.sizes, {}
    for precision in ("tf32", "fp32"):
        measure(stage, steps, step := Step(mlp(sizes.wide), sizes.wide_batch, precision), 1)
    row = steps[step]["graph"]
    floor = stage.check.folder / "bin/gpu_floor"
    rate = float(stage.succeed("SGEMM", [floor, sizes.sgemm]).split()[-1])
    share = row["gflops"] / 1e3 / rate
    stage.judge("wide net, fp32: share of SGEMM", share, ">=", 0.95, detail=f"of {rate:.3g} TFLOP/s")
    beside_torch(stage, steps, 1)


def all_reduce(stage, count, smallest, largest, *words):
    sizes = ["-b", smallest, "-e", largest, "-f", 32, "-c"]
    for row in stage.rows("all-reduce", "bench", "all-reduce", "--devices", count, *sizes, *words):
        name = f"all-reduce of {row['bytes']} bytes among {count}{' logical devices' if words else ' GPUs'}"
        detail = f"{row['busbw_gb_per_s']:.4g} GB/s bus bandwidth, {row['plan']}"
        stage.line(name, "measured", figure=row["time_us"], unit="us", detail=detail)


def net(stage, convolved, model, data, batches, precisions, least, least_compiled):
    """convolved: gets the steps of a net with convolutions."""
    steps = {}
    for batch in batches:
        for precision in precisions:
            stage.part(model, measure, stage, steps, Step(model, batch, precision, data), 1)
    convolved.update({step: rows for step, rows in steps.items() if len(rows["graph"]["row_shape"]) == 3})
    if steps:
        beside_torch(stage, steps, least, least_compiled)


def targets(stage):
    size, convolved = stage.check.sizes.all_reduce, {}
    stage.part("wide net", wide_net, stage)
    for row in stage.check.sizes.table:
        stage.part(row[0], net, stage, convolved, *row)
    stage.part("all-reduce", all_reduce, stage, 4, size, size, "--virtual-devices", "cuda:0*4")
    for count in [count for count in (2, 4, 8) if count <= stage.check.num_gpus]:
        stage.part(f"all-reduce between {count} GPUs", all_reduce, stage, count, "64K", "64M")
    stage.part("convolutions", beside_patches, stage, convolved)  # last: what time is left is theirs


# --- suite ---


def sanitizer(stage, kind):
    """Over our own kernels: compute-sanitizer reports reads in cuBLAS's that are none of ours."""
    program = shutil.which("compute-sanitizer", path=f"{os.environ['PATH']}:/usr/local/cuda/bin")
    if not program:
        raise Skipped("there is no compute-sanitizer")
    ours = [stage.check.folder / "bin/kernels_tests", "--gtest_filter=-Matmul*:Linear*"]
    environment = ["env", "LOCKSTEP_TEST_DEVICE=cuda", "LOCKSTEP_TUNING=off"]
    command = [*environment, program, "--tool", kind, "--error-exitcode", 1, *ours]
    stage.passes(f"our kernels under compute-sanitizer {kind}", *command, limit=90)


def suite(stage):
    """Nothing here is timed, so the parts run beside each other."""
    sizes, lockstep = stage.check.sizes, stage.check.lockstep
    parts = tests(stage, "(?!process_)", 120)

    def passes(name, *command):
        parts.append((name, lambda: stage.passes(name, *command, limit=120)))

    compare = [lockstep, "compare", "--device", "cuda", "--dataset", "digits", *sizes.compare]
    shared = ["--modes", "dp,ddp", "--devices", sizes.counts, "--virtual-devices", f"cuda:0*{sizes.counts[-1]}"]
    passes("compare: dp and ddp on logical devices equal one device", *compare, *shared)
    nccl = ["--modes", "ddp", "--comm", "nccl", "--nccl-share-gpu", "--ranks", "processes", "--devices", 2]
    passes("compare: ddp over NCCL, 2 ranks share the GPU", *compare, *nccl, "--virtual-devices", "cuda:0*2")
    for name in stage.check.names:
        if re.match(sizes.lessons, name):
            passes(f"tutorial {name}", stage.check.folder / "bin" / name, "--fast", "--device", "cuda")
    stage.beside(parts)
    # Processes that share a GPU take turns on it, so long ones have it for themselves.
    sanitized = [(f"compute-sanitizer {kind}", sanitizer, stage, kind) for kind in ("memcheck", "racecheck")]
    for part in [*tests(stage, "process_", 120), *sanitized]:
        stage.part(*part)


STAGES = {"first": (first, 180), "targets": (targets, 420), "suite": (suite, 360)}
