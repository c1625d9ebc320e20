"""Builds the programs, packs them with every library that a bare machine lacks, and finds them again."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAX_BYTES = 16_000_000
# Libraries of any machine with CUDA's driver and Python: glibc and GCC's own, which may be newer there, the driver, and
# OpenSSL 3, which Python's hashlib uses.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s|libcuda|libcrypto|ld-linux.*|linux-vdso)\.so\b"
)
# CPU kernels for any processor, libraries and programs that find each other wherever they lie, tests that
# start the program in PATH.
CARRIED = ("-DLOCKSTEP_NATIVE=OFF -DLOCKSTEP_QUICK=ON -DLOCKSTEP_SMALL=ON "
           "-DLOCKSTEP_TESTED_PROGRAM=lockstep -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DCMAKE_SKIP_INSTALL_RPATH=ON "
           "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib;$ORIGIN").split(" ")  # fmt: skip


class Problem(Exception):
    """Why the check cannot run, for people."""


def source_tree():
    """The project's root, or None in an unpacked pack."""
    root = HERE.parent.parent
    return root if (root / "CMakePresets.json").exists() else None


def output(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


def build(tree, name, preset, *flags):
    """Builds what a check needs in build/NAME, which is then laid out as a pack, without its libraries. Takes as many
    jobs as LOCKSTEP_JOBS says, default: all cores."""
    folder = tree / "build" / name
    jobs = os.environ.get("LOCKSTEP_JOBS", len(os.sched_getaffinity(0)))
    generator = [] if shutil.which("ninja") else ["-G", "Unix Makefiles"]
    for command in (
        ["cmake", "--preset", preset, "-B", folder, *generator, *flags],
        ["cmake", "--build", folder, "--target", "gpu_programs", "-j", jobs],
    ):
        words = [str(word) for word in command]
        print(f"lockstep: {' '.join(words[:4])}", flush=True)
        done = subprocess.run(words, cwd=tree, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise Problem(f"{' '.join(words)} failed:\n" + "\n".join(done.stdout.splitlines()[-25:]))
    git = ["git", "-c", f"safe.directory={tree}", "-C", tree, "describe", "--always", "--dirty", "--abbrev=12"]
    cuda = re.search(r"^LOCKSTEP_CUDA_VERSION:\w+=(\d+)", (folder / "CMakeCache.txt").read_text(), re.M)
    of = {"commit": output(*git).strip(), "cuda": int(cuda[1]) if cuda else 0}
    of["programs"] = sorted((folder / "gpu_programs.txt").read_text().split())
    (folder / "pack.json").write_text(json.dumps(of) + "\n")
    (folder / "share").mkdir(exist_ok=True)
    for path in (tree / "tests/bench").glob("torch_*.py"):
        shutil.copy(path, folder / "share")
    return folder


def libraries(files):
    """Every library that the files need, directly or not, and that a bare machine lacks."""
    found = set()
    for file in files:
        for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", output("ldd", file), re.M):
            if path == "not found":
                raise Problem(f"{file.name} needs {name}, which is not found here")
            if not SYSTEM_LIBRARIES.match(name):
                found.add(Path(path))
    return sorted(found)


def pack(tree, file, arch):
    """A pack for GPUs of one compute capability (90), and through its PTX for newer ones."""
    shared = f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={tree / 'build/gpu_pack/lib'}"
    built = build(tree, "gpu_pack", "cuda", f"-DCMAKE_CUDA_ARCHITECTURES={arch}", shared, *CARRIED)
    names = ["lockstep", "gpu_floor", *json.loads((built / "pack.json").read_text())["programs"]]
    programs = [built / "bin" / name for name in names]
    parts = {"bin": programs, "lib": libraries(programs), "share": (built / "share").iterdir(),
             "gpu_check": HERE.glob("*.py"), ".": [built / "pack.json", HERE.parent / "gpu_check.sh", tree / "LICENSE"]}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part, files in parts.items():
            (folder / part).mkdir(exist_ok=True)
            for path in files:
                shutil.copy(path, folder / part)
        output("strip", "--strip-unneeded", *(folder / "bin").iterdir(), *(folder / "lib").iterdir())
        output("tar", "czf", file, "-C", folder, ".")
    print(f"written: {file}, {file.stat().st_size / 1e6:.1f} MB")
    if file.stat().st_size > MAX_BYTES:
        raise Problem(f"{file} is larger than {MAX_BYTES / 1e6:g} MB")
