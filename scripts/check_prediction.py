#!/usr/bin/env python3
"""Predicts published figures with `lockstep predict` and prints how far off it is.

  scripts/check_prediction.py TABLE [MODELS] [--json FILE] [--program LOCKSTEP]

  TABLE      CSV. Scaling: set, hardware, interconnect, model, strategy, batch_per_gpu, gpus, value, unit; a row of
             several GPUs is predicted from its set's row of one GPU alone; a column `counted` says yes, or why
             the record leaves a row out, and a column `flags` has what else `lockstep predict` is told of the
             method. Where no net fits on one GPU, rows of several that `counted` marks as `start` take the place of
             the row of one: the prediction starts from the step by which it is exact for them. All-reduces: hardware,
             interconnect, algorithm, gpus, bytes, value, unit; every other row of a hardware is fitted, the rows
             between predicted
  MODELS     CSV of the nets of a scaling table: model, parameters, gradient_MB, forward_GFLOP_per_sample
  --json     writes the rows, too; '-' is standard output, and the table then goes to standard error
  --program  the program (default: build/release/bin/lockstep, else the one in PATH)

docs/prediction-record.md says how the rows are predicted, and shows the tables. Exits 1 if a table is wrong, with its line."""

import argparse
import csv
import difflib
import functools
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import SimpleNamespace

from published_hardware import UnknownHardware, find_hardware, split_count

ASSUMED_BATCH = 128  # over all GPUs, in a table without batches
MIB = 1 << 20
USUAL_POWER = 0.2  # assumed: docs/prediction-record.md
LARGE_BYTES = 16_000_000_000  # of an all-reduce whose row gives a bandwidth alone
SCALING_COLUMNS = ["set", "hardware", "interconnect", "model", "strategy", "batch_per_gpu", "gpus", "value", "unit"]
ALL_REDUCE_COLUMNS = ["hardware", "interconnect", "algorithm", "gpus", "bytes", "value", "unit"]
MODEL_COLUMNS = ["model", "parameters", "gradient_MB", "forward_GFLOP_per_sample"]
# The tables' names for the strategies of `lockstep predict`.
STRATEGIES = {
    "parameter_server": "cpu_parameter_server",
    "distributed_parameter_server": "cpu_parameter_server",
    "replicated": "nccl_replicated",
    "tf_cnn_benchmarks": "device_allreduce",  # assumed where a table states no more: docs/prediction-record.md
    "dataparallel": "dp",
    **dict.fromkeys(
        ["distributeddataparallel", "distributed_data_parallel", "horovod", "nccl", "allreduce",
         "distributed_replicated"], "ddp"),
    "shard_grad_op": "zero2",  # of PyTorch's FSDP
    **dict.fromkeys(["full_shard", "fsdp", "fsdp2"], "zero3"),
}  # fmt: skip
# Nets whose layers, or tensors, the program knows under this name.
KNOWN_SHAPES = {"vgg": "vgg16", **{name: name for name in
                ("alexnet", "vgg16", "lenet", "bert-base", "bert-large", "gpt2", "gpt2-medium", "resnet18", "resnet34",
                 "resnet50", "resnet101", "resnet152", "resnext50_32x4d", "densenet121", "mobilenet_v2")}}  # fmt: skip
KNOWN_FAMILIES = {
    "mpt-125m": "gpt:12-12-768-2048", "mpt-350m": "gpt:24-16-1024-2048", "mpt-760m": "gpt:24-12-1536-2048",
    "mpt-1b": "gpt:24-16-2048-2048", "mpt-3b": "gpt:32-20-2560-2048", "mpt-7b": "gpt:32-32-4096-2048",
    "mpt-13b": "gpt:40-40-5120-2048", "mpt-30b": "gpt:48-56-7168-2048", "mpt-70b": "gpt:80-64-8192-2048",
    "llama3-8b": "llama:32-32-4096-8192", "llama3-8b-4096": "llama:32-32-4096-4096",
}  # fmt: skip
# The kind and unit of a value: samples a second, seconds of a step or of epochs, or of some whole work.
UNITS = {
    "images_per_second": ("rate", 1),
    "samples_per_second": ("rate", 1),
    "seconds_per_iteration": ("step", 1),
    "seconds_per_step": ("step", 1),
    "milliseconds_per_iteration": ("step", 1e-3),
    "milliseconds_per_step": ("step", 1e-3),
    "epoch_seconds": ("epochs", 1),
    "seconds_per_epoch": ("epochs", 1),
    "seconds": ("total", 1),
}
SECONDS = {"microseconds": 1e-6, "milliseconds": 1e-3}


class TableError(Exception):
    """What is wrong, with the file and the line."""


class Table:
    """A CSV file's rows, which know their lines."""

    def __init__(self, path):
        self.path = path
        self.lines, self.rows = [], []
        try:
            with open(path, newline="", encoding="utf-8-sig", errors="replace") as file:
                reader = csv.reader(file, strict=True, skipinitialspace=True)
                cells = [(reader.line_num, [cell.strip() for cell in row]) for row in reader]
        except OSError as error:
            raise TableError(f"cannot read '{path}': {error.strerror}") from None
        except csv.Error as error:
            raise TableError(f"'{path}', line {reader.line_num}: {error}") from None
        cells = [(line, row) for line, row in cells if row and row != [""]]
        if not cells:
            raise TableError(f"'{path}', line 1: the table is empty; it must begin with the names of its columns")
        self.columns = cells[0][1]
        for line, row in cells[1:]:
            self.lines.append(line)
            if len(row) != len(self.columns):
                self.fail(-1, f"the header has {len(self.columns)} columns, this row {len(row)}")
            self.rows.append(dict(zip(self.columns, row)))

    def fail(self, row, text):
        raise TableError(f"'{self.path}', line {self.lines[row]}: {text}")

    def need_columns(self, columns):
        for column in columns:
            if column not in self.columns:
                raise TableError(f"'{self.path}', line 1: the table has no column '{column}'")

    def number(self, row, column, missing=None):
        """A positive number, or `missing` for an empty cell; without it an empty cell is an error."""
        text = self.rows[row][column]
        if text == "" and missing is not None:
            return missing
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 < value <= 1e18:
            self.fail(row, f"{column} must be a positive number, found '{text}'")
        return value

    def whole(self, row, column, missing=None, most=10**9):
        value = self.number(row, column, missing)
        if value != int(value) or value > most:
            self.fail(row, f"{column} must be a whole number from 1 to {most}")
        return int(value)


class Program:
    """`lockstep predict`, asked for a row of its JSON."""

    def __init__(self, path):
        self.path = path
        self.head = {}  # of the last file

    @functools.lru_cache(maxsize=None)
    def predict(self, *flags):
        """The file as JSON. Raises ValueError with the program's own words."""
        done = subprocess.run([self.path, "predict", *flags, "--json", "-"], capture_output=True, text=True)
        if done.returncode != 0:
            raise ValueError(done.stderr.strip().splitlines()[-1] if done.stderr else "lockstep predict failed")
        self.head = json.loads(done.stdout)
        return self.head


def json_row(row, set_name, model, strategy, predicted, topology, **more):
    names = {"set": set_name, "hardware": row.hardware, "interconnect": row.interconnect, "model": model}
    error = (predicted - row.value) / row.value
    figures = {"measured": row.value, "predicted": predicted, "error": error, "unit": row.unit}
    return {**names, "strategy": strategy, "gpus": row.gpus, **figures, "topology": topology, **more}


# Scaling tables.


def read_scaling_row(table, index):
    cells = table.rows[index]
    name = re.sub(r"[- ]", "_", cells["strategy"]).lower()
    epochs = re.fullmatch(r"seconds_per_([1-9]\d*)_epochs", cells["unit"])
    if not epochs and cells["unit"] not in UNITS:
        table.fail(index, f"unit '{cells['unit']}' is not one of {', '.join(UNITS)}, seconds_per_N_epochs")
    flags = shlex.split(cells.get("flags", ""))
    parts = int(flags[flags.index("--accumulate") + 1]) if "--accumulate" in flags else 1
    batch = table.whole(index, "batch_per_gpu", missing=0)
    read = {
        "index": index,
        "method": flags,
        "micro_batch": batch / parts,
        "gpus": table.whole(index, "gpus", most=1024),
        "value": table.number(index, "value"),
        "batch": batch,
        "ours": STRATEGIES.get(name, name),
        "counts": ("epochs", int(epochs[1])) if epochs else UNITS[cells["unit"]],
    }
    return SimpleNamespace(**{**cells, **read})


def read_models(path):
    """{name: (parameters by the bytes of its gradients, operations of a forward pass)}."""
    table = Table(path)
    table.need_columns(MODEL_COLUMNS)
    models = {}
    for index, row in enumerate(table.rows):
        table.number(index, "parameters")
        megabytes = table.number(index, "gradient_MB")
        if megabytes > 1e7:
            table.fail(index, "gradient_MB is above 10,000,000: is it in MB?")
        models[row["model"]] = megabytes * 1e6 / 4, table.number(index, "forward_GFLOP_per_sample") * 1e9
    return models


def starts_set(row):
    return getattr(row, "counted", "") == "start"


def single_row(table, row, rows):
    """The row of one GPU that the prediction starts from: with the same batch on each GPU, else the same over all of
    them, else the nearest; then of the same strategy, or called single; then of the same machine. Without one, a row of
    several GPUs that is marked as a start, with the same micro-batch and strategy."""

    def rank(other):
        if other.batch == row.batch or not (other.batch and row.batch):
            distance = 0 if other.batch == row.batch else 1
        else:
            distance = 2 if other.batch == row.batch * row.gpus else 3 + abs(math.log(other.batch / row.batch))
        strategy = 0 if other.strategy == row.strategy else 1 if other.ours == "single" else 2
        return distance, strategy, other.hardware != row.hardware, other.interconnect != row.interconnect

    def machine(other):
        return other.set, other.model, other.unit, split_count(other.hardware)[0]

    bases = sorted((other for other in rows if other.gpus == 1 and machine(other) == machine(row)), key=rank)
    for other in rows:
        same = machine(other) == machine(row) and other.strategy == row.strategy
        if starts_set(other) and same and other.micro_batch == row.micro_batch and other.gpus < row.gpus:
            bases.append(other)
    if not bases:
        table.fail(row.index, f"set '{row.set}' has no 1-device row of '{row.model}' on '{row.hardware}' in "
                              f"{row.unit}, which the prediction starts from")
    for other in bases[1:]:
        if rank(other) == rank(bases[0]) and other.value != bases[0].value:
            first, second = sorted(table.lines[base.index] for base in (bases[0], other))
            table.fail(row.index, f"the 1-device rows of lines {first} and {second}, from which the prediction could "
                                  "start, contradict each other")
    return bases[0]


def ask_for_step(row, batch, step, net, program, folder, method, gpus=None):
    """What the program says of the row's machine and net, given the step on one GPU with the batch; and the machine's
    name."""
    parameters, flops = net
    sizes = re.match(r"mlp\D*(\d+(?:-\d+)+)", row.model)
    known = f"mlp:{sizes[1]}" if sizes else KNOWN_SHAPES.get(row.model)
    family = KNOWN_FAMILIES.get(row.model)
    shape = ["--model", known] if known else ["--family", family] if family else []
    topology, name = find_hardware(row.hardware, row.interconnect, row.gpus, folder)
    file = program.predict(
        "--topology", topology, "--devices", str(gpus or row.gpus), "--strategy", row.ours, "--params",
        repr(parameters), "--flops", repr(flops), *shape, "--batch-per-gpu", str(batch),
        *(["--step", repr(step)] if step else []), *method)  # fmt: skip
    return file, name


def computing_step(start, batch, measured, net, program, folder):
    """The step on one GPU, with the batch, by which the start row's is predicted as it was measured."""
    step = measured
    for _ in range(30):
        file, _ = ask_for_step(start, start.batch, step, net, program, folder, start.method)
        excess = file["rows"][-1]["step_seconds"] - measured
        if abs(excess) < 1e-7 * measured:
            break
        step -= excess  # more computation makes the step longer by nearly as much
        if step <= 0:
            raise ValueError(f"the messages of {start.gpus} GPUs alone take longer than their step")
    else:
        raise ValueError(f"no step on one GPU makes the row of {start.gpus} GPUs as long as it is")
    if batch == start.batch:
        return step
    other = ["--what-if", f"batch={batch}"]
    file, _ = ask_for_step(start, start.batch, step, net, program, folder, other, gpus=1)
    return file["rows"][-1]["step_seconds"]


def predict_scaling_row(table, row, single, net, program, folder):
    """(row of the JSON file, whether it is right about "faster or slower than one GPU")."""
    _, flops = net
    kind, scale = row.counts
    samples = 1_281_167 if flops >= 1e8 else 60_000  # of an epoch: ImageNet's, MNIST's
    first_batch = single.batch or ASSUMED_BATCH
    batch = row.batch * row.gpus or first_batch  # over all GPUs

    def step_of(value, rows):
        return {"rate": rows / value, "step": value * scale, "epochs": value / scale * rows / samples}[kind]

    try:
        if single.gpus > 1:
            measured = step_of(single.value, first_batch * single.gpus)
            first_batch = row.batch
            step = computing_step(single, first_batch, measured, net, program, folder)
        else:
            step = step_of(single.value, first_batch) if kind != "total" else None  # else guessed
        other = ["--what-if", f"batch={batch}"] if batch != first_batch * row.gpus else []
        file, name = ask_for_step(row, first_batch, step, net, program, folder, row.method + other)
    except (UnknownHardware, ValueError) as error:
        table.fail(row.index, str(error))
    if file["rows"][-1]["devices"] != row.gpus:
        table.fail(row.index, f"strategy '{row.strategy}' is of one device")
    seconds, first_seconds = file["rows"][-1]["step_seconds"], file["config"]["step"]
    slowdown = (seconds / batch) / (first_seconds / first_batch)  # of a sample's time
    predicted = {
        "rate": batch / seconds,
        "step": seconds / scale,
        "epochs": samples * scale / batch * seconds,
        "total": single.value * slowdown,
    }[kind]
    # How many times as long as one GPU all GPUs take for a sample.
    measured = step_of(row.value, batch) / batch * first_batch / first_seconds if step else row.value / single.value
    line = json_row(row, row.set, row.model, row.strategy, predicted, name, superlinear=measured * row.gpus < 1)
    line["class"], line["counted"] = file["rows"][-1].get("class"), getattr(row, "counted", "yes")
    if line["superlinear"] and line["counted"] == "yes":
        line["counted"] = "measured faster than its devices times one device"
    return line, (measured < 1) == (slowdown < 1)


def predict_scaling(table, models, program, folder):
    rows = [read_scaling_row(table, index) for index in range(len(table.rows))]
    predictions = []
    for row in rows:
        if row.model not in models:
            close = difflib.get_close_matches(row.model, models, 1)
            hint = f"; did you mean '{close[0]}'?" if close else ""
            table.fail(row.index, f"model '{row.model}' is not in MODELS{hint}")
        if row.gpus > 1 and not starts_set(row):
            single = single_row(table, row, rows)
            predictions.append(predict_scaling_row(table, row, single, models[row.model], program, folder))
    return predictions


# Tables of all-reduces.


class AllReduceRow:
    def __init__(self, table, index, program, folder):
        cells = table.rows[index]
        self.index, self.program = index, program
        self.hardware, self.interconnect, self.unit = cells["hardware"], cells["interconnect"], cells["unit"]
        self.algorithm = cells["algorithm"]
        self.gpus = table.whole(index, "gpus", most=1024)
        self.bytes = table.whole(index, "bytes", missing=0, most=10**18)  # 0: the table gives none
        self.value = table.number(index, "value")
        self.is_fitted = False
        link = "" if self.unit == "GBps" else self.interconnect
        try:
            self.topology, self.machine = find_hardware(self.hardware, link, self.gpus, folder)
            self.kind = self.find_kind(table)  # rows of one kind share their constants
        except (UnknownHardware, ValueError) as error:
            table.fail(index, str(error))

    def find_kind(self, table):
        if self.unit == "GBps":
            return "copy"
        if self.unit not in (*SECONDS, "busbw_GBps"):
            table.fail(self.index, f"unit '{self.unit}' is not one of busbw_GBps, {', '.join(SECONDS)}, GBps")
        if self.gpus < 2:
            table.fail(self.index, "an all-reduce needs 2 gpus or more")
        if not self.bytes and self.unit != "busbw_GBps":
            table.fail(self.index, "bytes are missing")
        if "CPU" in self.algorithm:
            return "through_cpu"
        if "reduce+broadcast" in self.algorithm:
            return "on_devices"
        is_ring = "ring" in self.algorithm or "NVLS off" in self.algorithm
        return "ring" if is_ring or self.asked()["nvls_seconds"] is None else "nvls"

    def asked(self):
        """What the program says."""
        flags = ("--topology", self.topology, "--devices", str(self.gpus), "--all-reduce")
        return self.program.predict(*flags, str(self.bytes or LARGE_BYTES))["rows"][0]

    def bus_bytes(self):
        return (self.bytes or LARGE_BYTES) * 2 * (self.gpus - 1) / self.gpus

    def traffic(self):
        """What the algorithm moves."""
        return self.bytes if self.kind == "nvls" else self.bus_bytes()

    def seconds(self):
        return self.value * SECONDS[self.unit] if self.unit in SECONDS else self.bus_bytes() / (self.value * 1e9)

    def value_of(self, seconds):
        return seconds / SECONDS[self.unit] if self.unit in SECONDS else self.bus_bytes() / seconds / 1e9

    def preset_value(self):
        """What the machine's constants say without any fit, in the row's unit."""
        asked = self.asked()
        return asked["copy_gb_per_s"] if self.kind == "copy" else self.value_of(asked[f"{self.kind}_seconds"])


def fit_with_power(rows, power):
    """1/B and a of seconds = traffic / B + a * (bytes / MiB)^power, by least squares of the relative error, neither of
    them negative; and what is left of the squares."""
    pairs = [(row.traffic() / row.seconds(), (row.bytes / MIB) ** power / row.seconds()) for row in rows]
    uu = sum(u * u for u, v in pairs)
    uv = sum(u * v for u, v in pairs)
    vv = sum(v * v for u, v in pairs)
    u1 = sum(u for u, v in pairs)
    v1 = sum(v for u, v in pairs)
    determinant = uu * vv - uv * uv
    inverse = (u1 * vv - v1 * uv) / determinant if determinant else math.nan
    latency = (v1 * uu - u1 * uv) / determinant if determinant else math.nan
    if not latency >= 0:
        latency, inverse = 0, u1 / uu
    if not inverse > 0:  # all latency: as good as no limit
        latency, inverse = v1 / vv, 1e-15
    left = sum((inverse * u + latency * v - 1) ** 2 for u, v in pairs)
    return left, inverse, latency, power


def fit(rows):
    powers = [USUAL_POWER] if len(rows) < 3 else [0.01 * i for i in range(51)]
    return min((fit_with_power(rows, power) for power in powers), key=lambda found: found[0])


def predict_kind(rows):
    """{index: predicted value} of the rows that are not fitted."""
    fitted = [row for row in rows if row.is_fitted]
    has_curve = rows[0].kind in ("ring", "nvls") and all(r.bytes for r in fitted) and len({r.bytes for r in fitted}) > 1
    _, inverse, latency, power = fit(fitted) if has_curve else (0, 0, 0, 0)
    predicted = {}
    for row in rows:
        if has_curve and row.bytes:
            predicted[row.index] = row.value_of(row.traffic() * inverse + latency * (row.bytes / MIB) ** power)
        elif not row.is_fitted:
            logs = [math.log(other.value / other.preset_value()) for other in fitted]
            predicted[row.index] = row.preset_value() * math.exp(sum(logs) / max(1, len(logs)))
    return predicted


def predict_all_reduces(table, program, folder):
    rows = [AllReduceRow(table, index, program, folder) for index in range(len(table.rows))]
    machines, kinds, predicted = {}, {}, {}
    for row in rows:
        machines.setdefault((row.hardware, row.interconnect), []).append(row)
        kinds.setdefault((row.hardware, row.interconnect, row.kind), []).append(row)
    for same in machines.values():
        for place, row in enumerate(same):
            row.is_fitted = len(same) > 1 and place % 2 == 0
    for same in kinds.values():
        predicted |= predict_kind(same)
    return [
        json_row(row, "allreduce", row.algorithm, "all_reduce", predicted[row.index], row.machine, bytes=row.bytes)
        for row in rows
        if not row.is_fitted
    ]


# Prints at most 80 columns.


def percent(error, sign="+"):
    if error >= 100:
        return ">9999 %"
    return f"{100 * error:{sign}.{1 if error < 9.9995 else 0}f} %"


def short(value):
    """Three significant digits, so that tables of seconds and of images look alike; at most nine letters."""
    if not 0.001 <= value < 1e8:
        return f"{value:.2e}"
    return f"{value:.{4 if value < 1 else 2 if value < 10 else 1 if value < 1000 else 0}f}"


def cut(text, width):
    return text if len(text) <= width else text[: width - 2] + ".."


def errors_text(rows):
    errors = [abs(row["error"]) for row in rows]
    return f"error mean {percent(sum(errors) / len(errors), '')}, max {percent(max(errors), '')}"


def grouped(rows, key):
    groups = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return sorted(groups.items())


def print_machines(rows, out):
    """Which machine each hardware was taken for."""
    machines = {(row["hardware"], row["interconnect"]): row["topology"] for row in rows}
    for (hardware, interconnect), name in sorted(machines.items()):
        print(textwrap.fill(f"{hardware}, {interconnect}: as {name}", 80), file=out)


def print_scaling(predictions, out):
    rows = [row for row, _ in predictions]
    print(f"{'set':<4}{'hardware':<15}{'model':<13}{'strategy':<14}{'gpus':>4}{'predicted':>10}{'measured':>10}"
          f"{'error':>9}", file=out)
    for row in rows:
        print(f"{cut(row['set'], 3):<4}{cut(row['hardware'], 14):<15}{cut(row['model'], 12):<13}"
              f"{cut(row['strategy'], 13):<14}{row['gpus']:>4}{short(row['predicted']):>10}{short(row['measured']):>10}"
              f"{percent(row['error']):>9}{'' if row['counted'] == 'yes' else '*'}", file=out)
    for name, own in grouped(rows, "set"):
        right = sum(is_right for row, is_right in predictions if row["set"] == name)
        print(textwrap.fill(f"set {name}: {errors_text(own)}; faster or slower: right in {right} of {len(own)} rows",
                            80), file=out)
    reasons = sorted({row["counted"] for row in rows} - {"yes"})
    if reasons:
        print(textwrap.fill(f"*: the record leaves it out: {'; '.join(reasons)}", 80), file=out)
    print_machines(rows, out)


def print_all_reduces(rows, out):
    print(f"{'hardware':<12}{'algorithm':<24}{'gpus':>4}{'bytes':>12}{'predicted':>10}{'measured':>9}"
          f"{'error':>9}", file=out)
    for row in rows:
        size = "-" if not row["bytes"] else str(row["bytes"]) if row["bytes"] < 1e11 else f"{row['bytes']:.2e}"
        print(f"{cut(row['hardware'], 11):<12}{cut(row['model'], 23):<24}{row['gpus']:>4}{size:>12}"
              f"{short(row['predicted']):>10}{short(row['measured']):>9}{percent(row['error']):>9}", file=out)
    for name, own in grouped(rows, "hardware"):
        print(f"{name}: {errors_text(own)} in {len(own)} row{'' if len(own) == 1 else 's'}", file=out)
    print_machines(rows, out)


# The command line.


def usage_error(text):
    print(f"check_prediction.py: {text} (see --help)", file=sys.stderr)
    sys.exit(2)


def read_flags():
    parser = argparse.ArgumentParser(usage=argparse.SUPPRESS, description=__doc__, add_help=False)
    parser.format_help = lambda: __doc__ + "\n"
    parser.error = usage_error
    parser.add_argument("-h", "--help", action="help")
    parser.add_argument("table")
    parser.add_argument("models", nargs="?")
    parser.add_argument("--json")
    built = Path(__file__).resolve().parents[1] / "build" / "release" / "bin" / "lockstep"
    parser.add_argument("--program", default=built if built.exists() else "lockstep")
    flags = parser.parse_args()
    if not shutil.which(flags.program):
        usage_error(f"there is no program {flags.program}; name it with --program")
    return flags


def predict(flags, table, program, out):
    """Prints the table; returns the rows of the JSON file."""
    with tempfile.TemporaryDirectory() as folder:
        if "algorithm" in table.columns:
            table.need_columns(ALL_REDUCE_COLUMNS)
            rows, show = predict_all_reduces(table, program, folder), print_all_reduces
        else:
            table.need_columns(SCALING_COLUMNS)
            if not flags.models:
                usage_error("a scaling table needs MODELS, with the nets' parameters")
            rows, show = predict_scaling(table, read_models(flags.models), program, folder), print_scaling
    if not rows:
        raise TableError(f"'{table.path}', line 1: the table has no row to predict")
    show(rows, out)
    return [row for row, _ in rows] if show is print_scaling else rows


def main():
    flags = read_flags()
    program = Program(flags.program)
    try:
        rows = predict(flags, Table(flags.table), program, sys.stderr if flags.json == "-" else sys.stdout)
        head = {"schema": "lockstep.prediction/1", "date": program.head["date"], "command": sys.argv}
        text = json.dumps({**head, "host": program.head["host"], "rows": rows}, indent=2) + "\n"
        if flags.json == "-":
            sys.stdout.write(text)
        elif flags.json:
            Path(flags.json).write_text(text)
    except (TableError, OSError) as error:
        print(f"check_prediction.py: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
