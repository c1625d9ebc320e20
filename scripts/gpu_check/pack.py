"""Builds the programs, and packs them, or the sources with what building them needs, for a machine with a GPU."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path

from dependencies import copy_dependencies
from programs import HERE, PACK_FILE, commit_of, list_tests

MAX_BYTES = 40 << 20
# What a machine with CUDA's driver has: glibc and GCC's own libraries, which may be newer there, and the driver.
SYSTEM_LIBRARIES = re.compile(
    r"(libc|libm|libpthread|libdl|librt|libresolv|libstdc\+\+|libgcc_s|libcuda|ld-linux.*|linux-vdso)\.so\b"
)
# CPU kernels for any processor, libraries and programs that find each other wherever they lie, tests that
# start the program in PATH.
CARRIED = [
    "-DLOCKSTEP_NATIVE=OFF",
    "-DLOCKSTEP_MPI=OFF",
    "-DLOCKSTEP_QUICK=ON",
    "-DLOCKSTEP_TESTED_PROGRAM=lockstep",
    "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON",
    "-DCMAKE_SKIP_INSTALL_RPATH=ON",
    "-DCMAKE_BUILD_RPATH=$ORIGIN/../lib;$ORIGIN",
]


class BuildFailed(Exception):
    """What was done, and the last lines that it printed."""


def _quietly(what, *command, cwd=None):
    print(f"lockstep: {what}", flush=True)
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise BuildFailed(f"{what} failed:\n" + "\n".join(done.stdout.splitlines()[-25:]))
    return done.stdout


def _build(tree, folder, preset, *flags):
    """Builds what run() needs of the preset, with as many jobs as LOCKSTEP_JOBS says, default: all cores."""
    generator = [] if shutil.which("ninja") else ["-G", "Unix Makefiles"]
    _quietly(
        f"configuring {folder.relative_to(tree)}",
        "cmake",
        "--preset",
        preset,
        "-B",
        folder,
        *generator,
        *flags,
        cwd=tree,
    )
    jobs = os.environ.get("LOCKSTEP_JOBS", str(len(os.sched_getaffinity(0))))
    _quietly(
        f"building {folder.relative_to(tree)}",
        "cmake",
        "--build",
        folder,
        "--target",
        "gpu_programs",
        "-j",
        jobs,
        cwd=tree,
    )
    return folder


def build_emulated(tree):
    return _build(tree, tree / "build" / "emulated", "emulated")


def build_for_this_gpu(tree):
    """In a pack of sources its own dependencies serve, elsewhere those that scripts/setup.sh finds or installs."""
    dependencies = tree / "deps"
    flags = [f"-DCMAKE_PREFIX_PATH={dependencies}"] if dependencies.exists() else []
    if not flags:
        _quietly("looking for what building needs", tree / "scripts" / "setup.sh", cwd=tree)
    return _build(
        tree,
        tree / "build" / "cuda",
        "cuda",
        "-DCMAKE_CUDA_ARCHITECTURES=native",
        "-DLOCKSTEP_MPI=OFF",
        "-DLOCKSTEP_QUICK=ON",
        *flags,
    )


def needed(file):
    """The names of the shared libraries that a program or library names itself."""
    text = subprocess.run(["readelf", "-d", file], capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


def _libraries(files):
    """Every library that the files need, directly or not, and that a bare machine lacks: {name: path}."""
    found = {}
    for file in files:
        text = subprocess.run(["ldd", file], capture_output=True, text=True, check=True).stdout
        for name, path in re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$", text, re.MULTILINE):
            if SYSTEM_LIBRARIES.match(name):
                continue
            if path == "not found":
                raise BuildFailed(f"{file.name} needs {name}, which is not found here")
            found[name] = Path(path)
    return found


def _newest_glibc(files):
    """The glibc that the files need at least, as (2, 34)."""
    newest = (0, 0)
    for file in files:
        text = subprocess.run(["objdump", "-T", file], capture_output=True, text=True, check=True).stdout
        versions = re.findall(r"\(?GLIBC_(\d+)\.(\d+)", text)
        newest = max([newest, *((int(major), int(minor)) for major, minor in versions)])
    return newest


def _require_whole(folder):
    """Nothing in a folder needs a library that is neither there nor in every system."""
    present = {path.name for path in (folder / "lib").iterdir()}
    for file in [*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]:
        for name in needed(file):
            if name not in present and not SYSTEM_LIBRARIES.match(name):
                raise BuildFailed(f"{file.name} needs {name}, which the pack lacks")


def _write(folder, file):
    print(f"lockstep: packing {file}", flush=True)
    with tarfile.open(file, "w:xz", preset=6) as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name)
    size = file.stat().st_size
    print(f"written: {file}, {size / (1 << 20):.1f} MiB")
    if size > MAX_BYTES:
        raise BuildFailed(f"{file} is larger than {MAX_BYTES >> 20} MiB")


def _copy_script(folder):
    (folder / "gpu_check").mkdir()
    for path in HERE.glob("*.py"):
        shutil.copy(path, folder / "gpu_check")
    shutil.copy(HERE.parent / "gpu_check.sh", folder)


def pack_programs(tree, file, arch):
    """A pack for GPUs of one compute capability (90), and through its PTX for newer ones."""
    build = tree / "build" / "gpu_pack"
    _build(
        tree,
        build,
        "cuda",
        f"-DCMAKE_CUDA_ARCHITECTURES={arch}",
        f"-DCMAKE_LIBRARY_OUTPUT_DIRECTORY={build}/lib",
        *CARRIED,
    )
    lists = list_tests(build)
    names = {"lockstep", "gpu_floor", *lists["tutorials"], *(group["program"] for group in lists["tests"])}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for part in ("bin", "lib", "share"):
            (folder / part).mkdir()
        programs = [build / "bin" / name for name in sorted(names)]
        for path in programs:
            shutil.copy(path, folder / "bin")
        for name, path in _libraries(programs).items():
            shutil.copy(path, folder / "lib" / name)
        carried = [*(folder / "bin").iterdir(), *(folder / "lib").iterdir()]
        subprocess.run(["strip", "--strip-unneeded", *carried], check=True)
        _require_whole(folder)
        _copy_script(folder)
        shared = [
            tree / "tests/tutorials/check_output.sh",
            *(tree / "tests/bench").glob("torch_*.py"),
            *(tree / "tutorials" / f"{name}.cpp" for name in lists["tutorials"]),
        ]
        for path in shared:
            shutil.copy(path, folder / "share")
        shutil.copy(tree / "LICENSE", folder)
        glibc = ".".join(map(str, _newest_glibc(carried)))
        description = {"commit": commit_of(tree), "arch": arch, "glibc": glibc, "lists": lists}
        (folder / PACK_FILE).write_text(json.dumps(description, indent=1) + "\n")
        print(
            f"lockstep: {len(names)} programs for compute capability {arch}, which need glibc {glibc} or newer"
        )
        _write(folder, file)


def pack_sources(tree, file):
    """The tracked files, and in deps/ the headers and libraries that building them needs."""
    listed = _quietly(
        "listing the sources", "git", "-c", f"safe.directory={tree}", "ls-files", "-z", cwd=tree
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name in filter(None, listed.split("\0")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if (tree / name).exists():
                shutil.copy(tree / name, target)
        (folder / "commit.txt").write_text(commit_of(tree) + "\n")
        copy_dependencies(folder / "deps")
        _write(folder, file)
