"""Builds the programs, and packs them with every library that a bare machine with a GPU lacks."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from programs import HERE, PACK_FILE, commit_of, cuda_major, list_tests, output

MAX_BYTES = 40 << 20
# What a machine with CUDA's driver has: glibc and GCC's own libraries, which may be newer there, and the driver.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s|libcuda|ld-linux.*|linux-vdso)\.so\b"
)
# CPU kernels for any processor, libraries and programs that find each other wherever they lie, tests that
# start the program in PATH.
CARRIED = ("-DLOCKSTEP_NATIVE=OFF -DLOCKSTEP_MPI=OFF -DLOCKSTEP_QUICK=ON -DLOCKSTEP_TESTED_PROGRAM=lockstep "
           "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DCMAKE_SKIP_INSTALL_RPATH=ON "
           "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib;$ORIGIN").split(" ")  # fmt: skip


class BuildFailed(Exception):
    """What was done, and the last lines that it printed."""


def _quietly(what, *command, cwd):
    print(f"lockstep: {what}", flush=True)
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run([str(word) for word in command], cwd=cwd, stdin=subprocess.DEVNULL, text=True, **both)
    if done.returncode:
        raise BuildFailed(f"{what} failed:\n" + "\n".join(done.stdout.splitlines()[-25:]))


def _build(tree, folder, preset, *flags):
    """Builds what run() needs of the preset, with as many jobs as LOCKSTEP_JOBS says, default: all cores."""
    generator = [] if shutil.which("ninja") else ["-G", "Unix Makefiles"]
    configure = ["cmake", "--preset", preset, "-B", folder, *generator, *flags]
    _quietly(f"configuring {folder.relative_to(tree)}", *configure, cwd=tree)
    jobs = os.environ.get("LOCKSTEP_JOBS", len(os.sched_getaffinity(0)))
    build = ["cmake", "--build", folder, "--target", "gpu_programs", "-j", jobs]
    _quietly(f"building {folder.relative_to(tree)}", *build, cwd=tree)
    return folder


def build_emulated(tree):
    return _build(tree, tree / "build" / "emulated", "emulated")


def build_for_this_gpu(tree):
    _quietly("looking for what building needs", tree / "scripts" / "setup.sh", cwd=tree)
    flags = ["-DCMAKE_CUDA_ARCHITECTURES=native", "-DLOCKSTEP_MPI=OFF", "-DLOCKSTEP_QUICK=ON"]
    return _build(tree, tree / "build" / "cuda", "cuda", *flags)


def _libraries(files):
    """Every library that the files need, directly or not, and that a bare machine lacks: {name: path}."""
    found = {}
    for file in files:
        for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", output("ldd", file), re.MULTILINE):
            if SYSTEM_LIBRARIES.match(name):
                continue
            if path == "not found":
                raise BuildFailed(f"{file.name} needs {name}, which is not found here")
            found[name] = Path(path)
    return found


def _newest_glibc(files):
    """The glibc that the files need at least, as (2, 34)."""
    versions = [re.findall(r"\(?GLIBC_(\d+)\.(\d+)", output("objdump", "-T", file)) for file in files]
    return max((int(major), int(minor)) for found in versions for major, minor in found)


def _write(folder, file):
    print(f"lockstep: packing {file}", flush=True)
    with tarfile.open(file, "w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    size = file.stat().st_size
    print(f"written: {file}, {size / (1 << 20):.1f} MiB")
    if size > MAX_BYTES:
        raise BuildFailed(f"{file} is larger than {MAX_BYTES >> 20} MiB")


def pack_programs(tree, file, arch):
    """A pack for GPUs of one compute capability (90), and through its PTX for newer ones."""
    build = tree / "build" / "gpu_pack"
    flags = [f"-DCMAKE_CUDA_ARCHITECTURES={arch}", f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build}/lib", *CARRIED]
    _build(tree, build, "cuda", *flags)
    lists = list_tests(build)
    names = {"lockstep", "gpu_floor", *lists["tutorials"], *(group["program"] for group in lists["tests"])}
    programs = [build / "bin" / name for name in sorted(names)]
    shared = [tree / "tests/tutorials/check_output.sh", *(tree / "tests/bench").glob("torch_*.py")]
    shared += [tree / "tutorials" / f"{name}.cpp" for name in lists["tutorials"]]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        parts = {"bin": programs, "lib": [], "share": shared, "gpu_check": HERE.glob("*.py")}
        for part, files in parts.items():
            (folder / part).mkdir()
            for path in files:
                shutil.copy(path, folder / part)
        for name, path in _libraries(programs).items():
            shutil.copy(path, folder / "lib" / name)
        carried = [*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]
        output("strip", "--strip-unneeded", *carried)
        for path in (HERE.parent / "gpu_check.sh", tree / "LICENSE"):
            shutil.copy(path, folder)
        glibc = ".".join(map(str, _newest_glibc(carried)))
        description = {"commit": commit_of(tree), "arch": arch, "cuda": cuda_major(build), "glibc": glibc}
        (folder / PACK_FILE).write_text(json.dumps({**description, "lists": lists}, indent=1) + "\n")
        print(f"lockstep: {len(names)} programs for compute capability {arch}, which need glibc {glibc} or newer")
        _write(folder, file)
