"""What the stages are made of: first, suite and targets."""

import json
import re
import signal
import time
from dataclasses import dataclass

import machine
from stage import Failed, Skipped

SAME_LOSS = 1e-5  # relative
OTHER_KERNEL_US = 0.7  # the floor's allowance for each node that is no product
FOUR_RANKS = ["--parallel", "ddp", "--devices", 4, "--virtual-devices", "cuda:0*4"]


@dataclass(frozen=True)
class Sizes:
    """How large the nets are, and how long each is measured."""

    net: tuple = (784, 256, 128, 10)
    batches: tuple = (64, 256, 1024, 8192)
    seconds: float = 0.4
    wide: tuple = (784, 4096, 4096, 4096, 10)
    wide_batch: int = 4096
    sgemm: int = 8192
    epoch: tuple = (60000, 1024)  # rows, batch
    ddp: tuple = (65536, 8192)
    all_reduce: str = "1M"
    compare: tuple = ("--model", "mlp:64-1024-1024-10", "--epochs", 2)
    gradients: tuple = ()  # flags of check-gradients
    tests_of_each: int | None = None  # None: all
    devices: int = 8
    tutorials: str = ""  # begin so


# The emulated GPU is thousands of times slower than a real one.
REHEARSAL = Sizes(
    net=(12, 8, 4),
    batches=(8,),
    seconds=0.01,
    wide=(8, 16, 4),
    wide_batch=8,
    sgemm=32,
    epoch=(64, 16),
    ddp=(64, 16),
    all_reduce="1K",
    compare=("--model", "mlp:64-16-10", "--steps", 4),
    gradients=("--model", "mlp:31-33-7:gelu", "--batch", "1,33"),
    tests_of_each=1,
    devices=2,
    tutorials="01",
)


def mlp(sizes):
    return "mlp:" + "-".join(map(str, sizes))


def synthetic(stage, rows, batch, epochs):
    net = stage.check.sizes.net
    data = ["--dataset", f"synthetic:{rows}x{net[0]}x{net[-1]}", "--model", mlp(net)]
    return [*data, "--batch", batch, "--epochs", epochs, "--lr", 0.01]


# --- measurements by lockstep, by the floor of products alone, and by PyTorch ---


def step(stage, precision, batch, net, graph):
    """A row of `lockstep bench step`, with its time in "us". The log has the times of cuBLASLt's algorithms."""
    name = f"{cell_name(precision, batch, graph)}, {mlp(net)}"
    words = ["bench", "step", "--matmul-precision", precision, "--batch", batch, "--model", mlp(net)]
    words += ["--seconds", stage.check.sizes.seconds, *["--graph"] * graph]
    (row,) = stage.rows(name, words, 60, {"LOCKSTEP_LOG": "debug"})
    return {**row, "us": 1e6 * row["median_step_seconds"]}


def floor(stage, *words):
    """The numbers that gpu_floor prints behind their name."""
    program = stage.check.programs.bin / "gpu_floor"
    if not program.exists():
        raise Skipped("gpu_floor was not built")
    printed = stage.succeed("gpu_floor " + " ".join(map(str, words)), [program, *words], 60).text.split()
    if not printed or printed[0] != words[0]:
        raise Failed(f"gpu_floor printed '{' '.join(printed)[:60]}'")
    return [float(word) for word in printed[1:]]


def ask_torch(stage, questions):
    """PyTorch's answers, from one process, since importing it takes seconds."""
    python = machine.torch_python()
    if not python:
        raise Skipped("no Python here has PyTorch; LOCKSTEP_TORCH_PYTHON may name one")
    device = "cpu" if stage.check.is_emulated else "cuda"
    command = [python, stage.check.programs.torch / "torch_cuda.py", device]
    text = "".join(json.dumps(question) + "\n" for question in questions)
    outcome = stage.run("PyTorch", command, stage.left(), given=text)
    lines = [json.loads(line) for line in outcome.text.splitlines() if line.startswith("{")]
    if not lines or "torch" not in lines[0]:
        raise Skipped(lines[0]["problem"] if lines else f"PyTorch does not start: {outcome.problem}")
    stage.line("PyTorch", "measured", detail=f"{lines[0]['torch']} on {lines[0]['device']}")
    answers = lines[1:] + [{"problem": outcome.problem or "no answer"}] * (len(questions) - len(lines) + 1)
    return answers


def beside_torch(stage, wanted):
    """wanted: (name, question, which of its answers, our us, least ratio or None to state it only)."""
    questions = list({json.dumps(question): question for _, question, *_ in wanted}.values())
    answers = ask_torch(stage, questions)
    for name, question, which, ours, least in wanted:
        answer = answers[questions.index(question)]
        if which not in answer:
            stage.line(name, "FAILED", detail=f"PyTorch: {answer['problem']}")
            continue
        ratio, detail = answer[which] / ours, f"{answer[which]:.1f} us / {ours:.1f} us"
        if least is None:
            stage.line(name, "measured", figure=ratio, unit="x", detail=detail)
        else:
            stage.judge(name, ratio, ">=", least, "x", detail)


def torch_step(stage, precision, batch, net):
    seconds = stage.check.sizes.seconds
    return {"measure": "step", "precision": precision, "batch": batch, "sizes": net, "seconds": seconds}


# --- first ---


def devices(stage):
    print(stage.passes("lockstep devices", [stage.check.lockstep, "devices"], 20).text, end="")


def versions(stage):
    if stage.check.is_emulated:
        raise Skipped("no driver is needed on the emulated GPU")
    problem, detail = machine.versions(stage.check.programs.cuda)
    stage.line("driver, CUDA and cuBLASLt fit", "FAILED" if problem else "ok", detail=problem or detail)


def cell_name(precision, batch, graph):
    return f"bench step, batch {batch}, {precision}, {'graph' if graph else 'eager'}"


def cell(stage, precision, batch, graph):
    row = stage.cells[precision, batch, graph] = step(stage, precision, batch, stage.check.sizes.net, graph)
    nodes = f", {row['graph_nodes']} nodes" if graph else ""
    detail = f"{row['samples_per_second']:.3g} rows/s, {row['gflops']:.4g} GFLOP/s{nodes}"
    stage.line(cell_name(precision, batch, graph), "measured", figure=row["us"], unit="us", detail=detail)


def tests(stage, pattern, seconds, quiet, tuned):
    """The tests of the programs whose names match. Timing products says nothing in most of them."""
    groups = [group for group in stage.check.programs.lists()["tests"] if re.match(pattern, group["program"])]
    if not groups:
        raise Failed("the build has none of these tests")
    deadline = time.monotonic() + seconds
    for group in groups:
        of_device = group["environment"].get("LOCKSTEP_TEST_DEVICE") == "cuda" and not tuned
        untuned = {**group["environment"], **({"LOCKSTEP_TUNING": "off"} if of_device else {})}
        stage.part(group["program"], lambda stage: stage.tests({**group, "environment": untuned}, deadline, quiet))


def same_loss(stage, kind, flags):
    """DDP on 4 logical devices has the loss of one device."""
    (one,) = stage.rows(f"one device, {kind}", ["train", *flags])
    for graph in ([], ["--graph"]):
        name = f"DDP on 4 logical devices, {kind}, {'graph' if graph else 'eager'}"
        (row,) = stage.rows(name, ["train", *flags, *FOUR_RANKS, *graph])
        difference = abs(row["final_loss"] - one["final_loss"]) / abs(one["final_loss"])
        verdict = "ok" if difference <= SAME_LOSS else "FAILED"
        detail = f"{row['final_loss']:.8g} and {one['final_loss']:.8g}; step {1e6 * row['step_seconds']:.4g} us"
        asked = f"<= {SAME_LOSS:g}"
        stage.line(f"{name}: loss as one device's", verdict, figure=difference, asked=asked, detail=detail)


def timed_products(stage):
    """What cuBLASLt's first algorithm takes, divided by the fastest, by the logs (kernels/cuda/product.cpp)."""
    timed = re.compile(r"timed (\d+) algorithms of (.+ \[\d+, \d+\] x \d+): ([\d.]+) us, the first ([\d.]+) us")
    found = {}
    for log in sorted(stage.check.logs.glob(f"{stage.name}-*.log")):
        for count, product, best, first in timed.findall(log.read_text(errors="replace")):
            found[product] = (float(first) / max(float(best), 0.01), f"{first} us, fastest of {count} {best} us")
    if not found:
        raise Skipped("no product was timed")
    for product, (ratio, detail) in found.items():
        stage.line(f"first algorithm / fastest, {product}", "measured", figure=ratio, unit="x", detail=detail)


def first(stage):
    sizes, stage.cells = stage.check.sizes, {}
    batches = sizes.batches[::2] + sizes.batches[-1:] if len(sizes.batches) > 1 else sizes.batches
    stage.part("versions", versions)
    stage.part("lockstep devices", devices)
    cells = [(precision, batch, graph) for batch in batches for precision in ("highest", "high") for graph in (0, 1)]
    for number, key in enumerate(cells):
        stage.part(cell_name(*key), cell, *key)
        if number == 1:  # something works: is it right?
            nearest = r"cuda_runtime_tests|cuda_kernels_tests|cuda_products_tests"
            stage.part("kernel tests", tests, nearest, 60, 15, True)
            digits = ["--dataset", "digits", "--model", "mlp:64-256-10", "--batch", 64, "--epochs", 3]
            stage.part("DDP, full batches", same_loss, "full batches", synthetic(stage, *sizes.ddp, 3))
            stage.part("DDP, a partial last batch", same_loss, "a partial last batch", digits)
    stage.part("algorithms of cuBLASLt", timed_products)
    wanted = []
    for (precision, batch, graph), row in stage.cells.items():
        kind, question = "graph" if graph else "eager", torch_step(stage, precision, batch, sizes.net)
        wanted.append((f"PyTorch {kind} / ours, batch {batch}, {precision}", question, kind, row["us"], None))
    stage.part("PyTorch", beside_torch, wanted)


# --- suite ---


def gradients(stage, precision):
    words = ["check-gradients", "--device", "cuda", "--matmul-precision", precision, *stage.check.sizes.gradients]
    stage.passes(f"gradients beside Eigen in double, {precision}", [stage.check.lockstep, *words], 60)


def compare(stage, name, *flags):
    words = ["compare", "--device", "cuda", "--dataset", "digits", *stage.check.sizes.compare, *flags]
    outcome = stage.run(name, [stage.check.lockstep, *words], 60)
    require_nccl(outcome)
    stage.line(name, "FAILED" if outcome.problem else "ok", detail=outcome.problem or f"{outcome.seconds:.1f} s")


def require_nccl(outcome):
    if outcome.problem and re.search("built without NCCL|no NCCL was found", outcome.text):
        raise Skipped(outcome.problem)


def killed_rank(stage, name):
    """Rank 1 of 2 that train over NCCL is killed: rank 0 must not wait for ever."""
    train = (f"{stage.check.lockstep} train --device cuda --parallel ddp --comm nccl --nccl-share-gpu "
             "--virtual-devices cuda:0*2 --steps 100000000 --comm-timeout 10")  # fmt: skip
    rank = f'if [ "$RANK" = 1 ]; then (sleep 6; kill -KILL $$) & fi; exec {train}'
    words = ["run", "--standalone", "--nproc-per-node", 2, "--", "bash", "-c", rank]
    outcome = stage.run(name, [stage.check.lockstep, *words], 60)
    require_nccl(outcome)
    is_right = outcome.code == 128 + signal.SIGKILL and "rank 1 failed first" in outcome.text
    stage.line(name, "ok" if is_right else "FAILED", detail=f"{outcome.seconds:.1f} s, {outcome.problem}")


def sanitizer(stage, kind):
    """Over our own kernels: compute-sanitizer reports reads in cuBLAS's that are none of ours."""
    program = machine.tool("compute-sanitizer")
    groups = [group for group in stage.check.programs.lists()["tests"] if group["program"] == "cuda_kernels_tests"]
    if not program or not groups:
        raise Skipped("there is no compute-sanitizer" if groups else "the build has no cuda_kernels_tests")
    wanted = "--gtest_filter=" + ":".join(groups[0]["tests"][: stage.check.sizes.tests_of_each])
    command = [program, "--tool", kind, "--error-exitcode", 1, stage.check.programs.bin / "cuda_kernels_tests", wanted]
    stage.passes(f"our kernels under compute-sanitizer {kind}", command, 90, groups[0]["environment"])


def tutorial(stage, name):
    programs = stage.check.programs
    source = programs.tutorials / f"{name}.cpp"
    stage.passes(f"tutorial {name}", ["bash", programs.check_output, programs.bin / name, source, "cuda"], 60)


def suite(stage):
    most = stage.check.sizes.devices
    stage.part("gradients", gradients, "highest")
    counts = ",".join(str(n) for n in (1, 2, 4, 8) if n <= most)
    name = "compare: dp and ddp on logical devices equal one device"
    devices = ["--devices", counts, "--virtual-devices", f"cuda:0*{most}"]
    stage.part(name, compare, name, "--modes", "dp,ddp", *devices)
    stage.part("tests", tests, ".", 180, 60, False)
    for count in {2, min(4, most)}:
        name = f"compare: ddp over NCCL, {count} ranks share the GPU"
        nccl = ["--modes", "ddp", "--comm", "nccl", "--nccl-share-gpu", "--ranks", "processes"]
        stage.part(name, compare, name, *nccl, "--devices", count, "--virtual-devices", f"cuda:0*{count}")
    name = "NCCL: a killed rank ends the other one"
    stage.part(name, killed_rank, name)
    for precision in ("high", "medium"):
        stage.part("gradients", gradients, precision)
    for program in stage.check.programs.lists()["tutorials"]:
        if program.startswith(stage.check.sizes.tutorials):
            stage.part(f"tutorial {program}", tutorial, program)
    for kind in ("memcheck", "racecheck"):
        stage.part(f"compute-sanitizer {kind}", sanitizer, kind)


# --- targets ---


def small_net(stage, precision, batch, wanted):
    """Steps of the small net beside the floor; what they are to be beside PyTorch goes to `wanted`."""
    net = stage.check.sizes.net
    name, question = f"{mlp(net)}, batch {batch}, {precision}", torch_step(stage, precision, batch, net)
    graph = step(stage, precision, batch, net, graph=True)
    least = 1.3 if batch == 8192 and precision == "highest" else 2
    wanted.append((f"{name}: PyTorch graph / ours", question, "graph", graph["us"], least))
    if batch < 8192:
        eager = step(stage, precision, batch, net, graph=False)
        wanted.append((f"{name}: PyTorch eager / ours, no graph", question, "eager", eager["us"], 5))
        wanted.append((f"{name}: PyTorch eager / our graph", question, "eager", graph["us"], 20))
    products, count = floor(stage, "products", precision, batch, *net)
    lowest = products + OTHER_KERNEL_US * (graph["graph_nodes"] - count)
    detail = f"{graph['us']:.2f} us, {count:.0f} products {products:.2f} us, {graph['graph_nodes']} nodes"
    stage.judge(f"{name}: graph / floor", graph["us"] / lowest, "<=", 1.4, "x", detail)


def wide_net(stage, wanted):
    sizes = stage.check.sizes
    name, batch = f"wide net, batch {sizes.wide_batch}", sizes.wide_batch
    high = step(stage, "high", batch, sizes.wide, graph=True)
    question = torch_step(stage, "high", batch, sizes.wide)
    wanted.append((f"{name}, high: PyTorch graph / ours", question, "graph", high["us"], 1.25))
    highest = step(stage, "highest", batch, sizes.wide, graph=True)
    (rate,) = floor(stage, "sgemm", "highest", sizes.sgemm)
    detail = f"{highest['us']:.0f} us, {highest['gflops'] / 1e3:.3g} of {rate:.3g} TFLOP/s"
    stage.judge(f"{name}, highest: share of SGEMM", highest["gflops"] / 1e3 / rate, ">=", 0.95, "", detail)


def epoch(stage, wanted):
    rows, batch = stage.check.sizes.epoch
    net = stage.check.sizes.net
    (row,) = stage.rows("epoch", ["train", "--graph", *synthetic(stage, rows, batch, 6)])
    ours, steps = 1e6 * min(row["epoch_seconds"][1:]), -(-rows // batch)
    question = {"measure": "epoch", "rows": rows, "batch": batch, "sizes": net}
    wanted.append((f"epoch of {rows} rows: PyTorch eager / ours", question, "epoch", ours, 10))
    one = step(stage, "highest", batch, net, graph=True)["us"]
    detail = f"{ours:.0f} us, step {one:.2f} us"
    stage.judge(f"epoch of {rows} rows / {steps} graph steps", ours / (steps * one), "<=", 1.1, "x", detail)


def four_devices(stage):
    flags = synthetic(stage, *stage.check.sizes.ddp, 12)
    names = (("one device", []), ("four devices", FOUR_RANKS))
    one, four = (1e6 * stage.rows(name, ["train", *flags, *more])[0]["step_seconds"] for name, more in names)
    detail = f"{four:.1f} us / {one:.1f} us"
    stage.judge("DDP on 4 logical devices / one device", four / one, "<=", 1.5, "x", detail)
    size = stage.check.sizes.all_reduce
    words = ["bench", "all-reduce", "--virtual-devices", "cuda:0*4", "--devices", 4, "-b", size, "-e", size, "-c"]
    (row,) = stage.rows("all-reduce", [*words, "-n", 200])
    stage.judge(f"all-reduce of {size}iB among 4 logical devices", row["time_us"], "<=", 20, "us")


def between_gpus(stage, count):
    words = ["bench", "all-reduce", "--devices", count, "-b", "64K", "-e", "64M", "-f", 32, "-c"]
    for row in stage.rows(f"all-reduce between {count} GPUs", words):
        detail = f"{row['busbw_gb_per_s']:.4g} GB/s bus bandwidth, {row['plan']}"
        name = f"all-reduce of {row['bytes']} bytes between {count} GPUs"
        stage.line(name, "measured", figure=row["time_us"], unit="us", detail=detail)


def profile(stage):
    """ncu over one captured step: its table is in the logs."""
    program, sizes = machine.tool("ncu"), stage.check.sizes
    if not program:
        raise Skipped("there is no ncu")
    words = ["bench", "step", "--device", "cuda", "--graph", "--batch", 64, "--model", mlp(sizes.net)]
    profiled = [program, "--graph-profiling", "node", "--csv", "--page", "raw", "--launch-count", 200,
                "--metrics", "gpu__time_duration.sum,dram__bytes.sum"]  # fmt: skip
    stage.passes("ncu over captured steps", [*profiled, stage.check.lockstep, *words, "--seconds", 0.001], 90)


def targets(stage):
    wanted = []
    for batch in stage.check.sizes.batches:
        for precision in ("highest", "high"):
            stage.part(f"small net, batch {batch}, {precision}", small_net, precision, batch, wanted)
    stage.part("DDP on 4 logical devices", four_devices)
    stage.part("epoch from host memory", epoch, wanted)
    stage.part("wide net", wide_net, wanted)
    stage.part("PyTorch", beside_torch, wanted)
    for count in (2, 4, 8):
        if count <= stage.check.num_gpus:
            stage.part(f"all-reduce between {count} GPUs", between_gpus, count)
    stage.part("ncu", profile)


STAGES = {"first": (first, 180), "suite": (suite, 360), "targets": (targets, 360)}
REHEARSAL_SECONDS = 120
