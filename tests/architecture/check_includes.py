"""Checks the direction of every #include against the layer table of docs/architecture.md:

  check_includes.py ROOT

A file may include its own folder and folders of lower layers, and no text of the library names a flag. Each breach is one line "file:line: why"."""

import re
import sys
from pathlib import Path

ROOT = Path(sys.argv[1])
# The places where a device's or a library's headers may appear. tests/bench is the hand-written floor for the
# engine's speed.
CUDA = re.compile(r"(cuda|cublas|cudnn|curand|cusparse|cusolver|nccl|nvtx|nvml|cooperative_groups|cub/|thrust/|mma\.h)")
CUDA_PLACES = re.compile(
    r"((tests/)?(kernels/cuda/|engine/runtime/cuda/|engine/comm/nccl/)|tests/emulated_gpu/|tests/bench/)")
EIGEN = re.compile(r"(Eigen|unsupported/Eigen|eigen3)/")
EIGEN_PLACES = re.compile(r"(kernels/cpu/|tests/bench/)")
OURS = re.compile(r"(engine|kernels|simulate|datasets|tools|tutorials|tests)/|lockstep\.h$")
# A flag of the command line in a text of the library, which knows none: tools/commands/hints adds it.
FLAG = re.compile(r'^(?!\s*//).*"[^"]*(?<![\w-])(?<!srun )--[a-z]{2,}')
WITHOUT_FLAGS = re.compile(r"(engine|kernels|simulate)/")
WITHOUT_CUDA_CONDITIONS = re.compile(r"(engine/tensor|engine/autograd|engine/nn|tutorials)/")


def read_layers():
    """Folder (or the one file) -> layer, of the rows "| layer | `folder`, `folder` | ..."."""
    table = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| (`[^|]+)", table, re.MULTILINE)
    return {folder: int(layer) for layer, folders in rows for folder in re.findall(r"[a-z][a-z_/.]*", folders)}


LAYERS = read_layers()


def folder_of(path):
    return next((folder for folder in LAYERS if f"{path}/".startswith(f"{folder}/")), None)


def problem_of_include(path, header):
    if CUDA.match(header) and not CUDA_PLACES.match(path):
        return f"CUDA header <{header}> outside the CUDA folders"
    if EIGEN.match(header) and not EIGEN_PLACES.match(path):
        return f"Eigen header <{header}> outside kernels/cpu"
    own, its = folder_of(path), folder_of(header)
    if not OURS.match(header) or own is None or header.startswith(f"{own}/"):  # tests include what they test
        return ""
    if re.match(r"(tutorials|tests)/", header) and its != "tutorials/labs":
        return f"{header}: nothing includes tutorials or tests"
    if its is None:
        return f"{header} is in a folder that the layer table does not name"
    if LAYERS[its] >= LAYERS[own]:
        return f"{own} (layer {LAYERS[own]}) must not include {header} (layer {LAYERS[its]})"
    return ""


def problem_of_line(path, line):
    include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)', line)
    if include:
        return problem_of_include(path, include[1])
    if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*CUDA", line) and WITHOUT_CUDA_CONDITIONS.match(path):
        return "no condition on CUDA in operations, layers and tutorials: leave out files instead"
    if FLAG.match(line) and WITHOUT_FLAGS.match(path):
        return "the library knows no flags of the command line: let tools/commands/hints add this one"
    return ""


def main():
    num_files, num_breaches = 0, 0
    for folder in ("engine", "kernels", "simulate", "datasets", "tools", "tutorials", "tests", "lockstep.h"):
        files = [ROOT / folder] if folder.endswith(".h") else (ROOT / folder).rglob("*")
        for file in sorted(file for file in files if file.suffix in (".h", ".cpp", ".cu")):
            path = str(file.relative_to(ROOT))
            problems = [(n, problem_of_line(path, line)) for n, line in enumerate(file.read_text().splitlines(), 1)]
            if folder_of(path) is None and folder != "tests":
                problems.append((1, "this folder is not in the layer table"))
            for number, problem in problems:
                if problem:
                    print(f"{path}:{number}: {problem}")
                    num_breaches += 1
            num_files += 1
    print(f"{num_files} files, {num_breaches} breaches of the layer table")
    sys.exit(num_breaches > 0 or num_files == 0 or not LAYERS)


main()
