"""What the machine is, and where NVIDIA's libraries and tools, and PyTorch, lie on it."""

import ctypes
import glob
import os
import platform
import shutil
import subprocess
from pathlib import Path

GPU_COLUMNS = ("name", "driver_version", "compute_cap", "memory.total", "clocks.max.sm", "power.limit")
# Environments of Python, whose wheels bring CUDA's libraries.
PYTHONS = ("/usr", "/usr/local", "/opt/*", "/*/.venv", "/*/*/.venv", "~/.venv", "~/*/.venv", "./.venv", "/*venv*")
LIBRARIES = ("libcublasLt.so", "libnccl.so")


def _output(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _existing(patterns):
    return [path for pattern in patterns for path in sorted(glob.glob(os.path.expanduser(pattern)))]


def gpus():
    """One dictionary per GPU, by nvidia-smi; without it, one per device file; none where there is none."""
    query = "--query-gpu=" + ",".join(GPU_COLUMNS)
    lines = _output("nvidia-smi", query, "--format=csv,noheader").splitlines()
    rows = [[word.strip() for word in line.split(",")] for line in lines]
    found = [dict(zip(GPU_COLUMNS, row)) for row in rows if len(row) == len(GPU_COLUMNS)]
    return found or [{"name": path} for path in sorted(glob.glob("/dev/nvidia[0-9]*"))]


def library_folders():
    """Folders with CUDA's libraries, the toolkit's first, for LD_LIBRARY_PATH."""
    toolkit = ["/usr/local/cuda/lib64", "/usr/local/cuda-*/lib64", "/usr/local/cuda-*/targets/*/lib"]
    wheels = [f"{python}/lib/python3*/*-packages/nvidia/*/lib" for python in PYTHONS]
    return [folder for folder in _existing(toolkit + wheels) if _existing(f"{folder}/{name}*" for name in LIBRARIES)]


def tool(name):
    """A tool of the CUDA toolkit, which is often not in PATH; None where it is missing."""
    places = ["/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/nvidia/nsight-compute/*", "/opt/nvidia/*/bin"]
    return shutil.which(name) or shutil.which(name, path=":".join(_existing(places)))


def torch_python():
    """The Python that has PyTorch: the one that LOCKSTEP_TORCH_PYTHON names, or one found here; None: none."""
    named = os.environ.get("LOCKSTEP_TORCH_PYTHON")
    if named:
        return named
    for folder in _existing(f"{python}/lib/python3*/*-packages/torch" for python in PYTHONS):
        python = Path(folder).parents[3] / "bin/python3"
        if python.exists():
            return str(python)
    return None


def _version(library, function):
    """What a C function `status f(int*)`, or `size_t f()`, of a library says; 0 where it cannot be asked."""
    try:
        call = getattr(ctypes.CDLL(library), function)
    except (OSError, AttributeError):
        return 0
    number = ctypes.c_int(0)
    return call() if function == "cublasLtGetVersion" else number.value if call(ctypes.byref(number)) == 0 else 0


def versions(cuda):
    """(what does not fit, and what to do; empty if all fits), and what there is. cuda: major that programs need."""
    driver = _version("libcuda.so.1", "cuDriverGetVersion") // 1000
    found = [*_existing(f"{folder}/libcublasLt.so.{cuda}" for folder in library_folders()), f"libcublasLt.so.{cuda}"]
    blas = max(_version(path, "cublasLtGetVersion") for path in found) // 10000
    detail = f"programs for CUDA {cuda}, driver for CUDA {driver or '?'}, cuBLASLt {blas or '?'}"
    if driver and driver < cuda:
        return f"{detail}: install a driver for CUDA {cuda}, or pack with an older toolkit", detail
    if not blas:
        return f"{detail}: install the toolkit, or name the folder of libcublasLt.so.{cuda} in LD_LIBRARY_PATH", detail
    return "", detail


def describe(found_gpus):
    """For gpu_check.json: machine."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    try:
        system = platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        system = platform.system()
    return {
        "gpus": found_gpus,
        "cpu": cpu[0].split(":", 1)[1].strip() if cpu else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "os": system,
        "kernel": platform.release(),
        "glibc": platform.libc_ver()[1],
        "toolkit": (_output("nvcc", "--version").splitlines() or ["no nvcc"])[-1],
    }
