"""What the machine is: what its figures mean nothing without."""

import glob
import os
import platform
import subprocess
from pathlib import Path

GPU_COLUMNS = (
    "name",
    "driver_version",
    "compute_cap",
    "memory.total",
    "clocks.max.sm",
    "clocks.max.memory",
    "power.limit",
    "mig.mode.current",
)
# Where CUDA's libraries may lie that the loader does not know: the toolkit, and PyTorch's wheels.
LIBRARY_FOLDERS = (
    "/usr/local/cuda/lib64",
    "/usr/local/cuda-*/lib64",
    "/usr/local/cuda-*/targets/*/lib",
    "/usr/lib/python3*/*-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
    "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
)
LIBRARIES = ("libcublasLt.so", "libnccl.so")


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def gpus():
    """One dictionary per GPU, by nvidia-smi; without it, one per device file; none where there is none."""
    lines = _output(
        "nvidia-smi", "--query-gpu=" + ",".join(GPU_COLUMNS), "--format=csv,noheader"
    ).splitlines()
    found = [
        dict(zip(GPU_COLUMNS, map(str.strip, line.split(",")))) for line in lines if line.count(",") >= 7
    ]
    return found or [{"name": path} for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]


def library_folders():
    """Folders with CUDA's libraries, the toolkit's first, for LD_LIBRARY_PATH."""
    folders = [folder for pattern in LIBRARY_FOLDERS for folder in sorted(glob.glob(pattern))]
    return [folder for folder in folders if any(glob.glob(f"{folder}/{name}*") for name in LIBRARIES)]


def _cpu():
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def _system():
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def describe(found_gpus):
    """For gpu_check.json: machine."""
    return {
        "gpus": found_gpus,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "os": _system(),
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "toolkit": next(
            (line for line in reversed(_output("nvcc", "--version").splitlines()) if line), "no nvcc"
        ),
    }
