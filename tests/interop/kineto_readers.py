"""Traces of `lockstep train --trace-format kineto` as the tools made for PyTorch's profiler read them.

usage: kineto_readers.py LOCKSTEP
Holistic Trace Analysis (package HolisticTraceAnalysis) must find the overlap of communication and computation
that the run file states; TensorBoard's plugin (torch-tb-profiler) must find every rank, every step and every
all-reduce. Exits 77 where neither is installed.
"""
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings

lockstep = sys.argv[1]
STEPS = 12
BUCKETS = ["--first-bucket-mib", "0.25", "--bucket-mib", "1"]


def has(module):
    return importlib.util.find_spec(module) is not None


def train(folder, ranks, flags):
    command = [lockstep, "train", "--device", "cpu", "--parallel", "ddp", "--devices", str(ranks), "--steps", str(STEPS)]
    command += ["--model", "mlp:64-512-512-10", "--trace-format", "kineto"]
    command += ["--trace", f"{folder}/traces/run.json", "--json", f"{folder}/run.json", *flags]
    os.mkdir(f"{folder}/traces")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    with open(f"{folder}/run.json") as file:
        return json.load(file)["rows"][0]


def check_hta(folder, row):
    from hta.trace_analysis import TraceAnalysis

    analysis = TraceAnalysis(trace_dir=f"{folder}/traces", include_last_profiler_step=True)
    table = analysis.get_comm_comp_overlap(visualize=False)
    found = dict(zip(table["rank"], table["comp_comm_overlap_pctg"]))
    stated = {rank: 100 * fraction for rank, fraction in enumerate(row["comm_overlap_fraction"])}
    print(f"    overlap in percent: HTA {found}, run file {({k: round(v, 2) for k, v in stated.items()})}")
    assert found.keys() == stated.keys(), "HTA does not find every rank"
    for rank, percent in stated.items():
        # HTA_DISABLE_NS_ROUNDING=1 leaves its rounding to two decimals.
        assert abs(found[rank] - percent) < 0.02, f"rank {rank}: HTA {found[rank]} %, run file {percent} %"


def check_tensorboard(folder, row):
    from torch_tb_profiler.consts import NODE_PROCESS_PATTERN, WORKER_PATTERN
    from torch_tb_profiler.profiler.data import RunProfileData

    files = sorted(os.listdir(f"{folder}/traces"))
    assert len(files) == row["devices"], files
    for rank, name in enumerate(files):
        worker = WORKER_PATTERN.match(name).group(1)
        assert NODE_PROCESS_PATTERN.match(worker).group(2) == str(rank), worker
        profile = RunProfileData.parse(worker, None, f"{folder}/traces/{name}", folder)
        assert len(profile.steps_names) == STEPS, profile.steps_names
        assert profile.has_kernel and profile.has_communication
        assert {node.name for node in profile.comm_node_list} <= {"nccl:all_reduce", "nccl:broadcast"}
        assert all(node.step_name is not None for node in profile.comm_node_list)
        overlap = sum(costs.overlap for costs in profile.comm_overlap_costs)
        total = sum(costs.communication for costs in profile.comm_overlap_costs)
        print(f"    TensorBoard, rank {rank}: {len(profile.comm_node_list)} collectives, overlap {100 * overlap / total:.2f} %")
        assert abs(overlap / total - row["comm_overlap_fraction"][rank]) < 1e-4


readers = [check for module, check in (("hta", check_hta), ("torch_tb_profiler", check_tensorboard)) if has(module)]
if not readers:
    print("skipped: neither HolisticTraceAnalysis nor torch-tb-profiler is installed for", sys.executable)
    sys.exit(77)
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
logging.disable(logging.CRITICAL)
warnings.filterwarnings("ignore")
for ranks in (1, 2, 4):
    for flags in ([], BUCKETS, ["--ranks", "processes"], ["--ranks", "processes", *BUCKETS]):
        print(ranks, "ranks", *flags, flush=True)
        with tempfile.TemporaryDirectory() as folder:
            row = train(folder, ranks, flags)
            for check in readers:
                check(folder, row)
for module in ("hta", "torch_tb_profiler"):
    if not has(module):
        print(f"not checked: {module} is not installed")
