"""What the machine is, and where NVIDIA's libraries and tools, and PyTorch, lie on it."""

import ctypes
import glob
import os
import platform
import re
import subprocess
from pathlib import Path

GPU_COLUMNS = ("name", "driver_version", "compute_cap", "memory.total", "power.limit")
# Environments of Python, whose wheels bring CUDA's libraries.
PYTHONS = ("/usr", "/usr/local", "/opt/*", "/*/.venv", "/*/*/.venv", "~/.venv", "~/*/.venv", "./.venv", "/*venv*")


def _existing(patterns):
    return [path for pattern in patterns for path in sorted(glob.glob(os.path.expanduser(pattern)))]


def _packages(name):
    return _existing(f"{python}/lib/python3*/*-packages/{name}" for python in PYTHONS)


def _ask_nvidia_smi(columns):
    """Its lines. An exit code other than 0 may be a warning, such as that an infoROM is corrupted."""
    command = ["nvidia-smi", "--query-gpu=" + ",".join(columns), "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired):
        return []


def gpus():
    """One dictionary per GPU, by nvidia-smi; without it, one per device file; none where there is none."""
    columns = list(GPU_COLUMNS)
    lines = _ask_nvidia_smi(columns)
    # Older drivers do not know each column.
    while unknown := re.search(r"Field [\"'](.+?)[\"'] is not a valid field", "\n".join(lines)):
        if unknown[1] not in columns or len(columns) == 1:
            break
        columns.remove(unknown[1])
        lines = _ask_nvidia_smi(columns)
    rows = [[word.strip() for word in line.split(",")] for line in lines]
    found = [dict(zip(columns, row)) for row in rows if len(row) == len(columns) > 1]
    return found or [{"name": path} for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]


def library_folders():
    """Folders with cuBLASLt, cuDNN or NCCL, the toolkit's first, for LD_LIBRARY_PATH."""
    toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/targets/*/lib"]
    folders = _existing(toolkit) + _packages("nvidia/*/lib")
    wanted = ("libcublasLt.so*", "libcudnn.so*", "libnccl.so*")
    return [folder for folder in folders if _existing(f"{folder}/{name}" for name in wanted)]


def torch_python():
    """The Python that has PyTorch: the one that LOCKSTEP_TORCH_PYTHON names, or one found here; None: none."""
    found = [str(Path(folder).parents[3] / "bin/python3") for folder in _packages("torch")]
    return os.environ.get("LOCKSTEP_TORCH_PYTHON") or next(iter(found), None)


def versions(cuda):
    """(ok or FAILED, what there is and what to do). cuda: the major version that programs need."""
    number = ctypes.c_int(0)
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
    except OSError:
        pass
    driver, blas = number.value // 1000, 0
    for folder in [*library_folders(), ""]:  # at last, where the loader finds it
        try:
            blas = blas or ctypes.CDLL(os.path.join(folder, f"libcublasLt.so.{cuda}")).cublasLtGetVersion()
        except OSError:
            pass
    detail = f"programs for CUDA {cuda}, driver for CUDA {driver or '?'}, cuBLASLt {blas or '?'}"
    if driver < cuda:
        return "FAILED", f"{detail}: install a driver for CUDA {cuda}, or pack with an older toolkit"
    if not blas:
        return "FAILED", f"{detail}: install the toolkit, or name its folder of libraries in LD_LIBRARY_PATH"
    return "ok", detail


def host():
    """Processor, cores, system and glibc, as one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    system = f"{platform.system()} {platform.release().split('-')[0]}, glibc {platform.libc_ver()[1]}"
    return f"{name}, {len(os.sched_getaffinity(0))} cores, {system}"
