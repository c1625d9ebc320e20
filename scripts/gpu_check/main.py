"""The command line of scripts/gpu_check.sh; its --help is that script's opening comment."""

import datetime
import os
import shutil
import sys
import tarfile
import time
from pathlib import Path

import first
import machine
import measured
import pack
import suite
import targets
import tools
from bench import REHEARSAL, Sizes
from peer import Peer
from programs import HERE, PACK_FILE, Programs, source_tree
from stage import Skipped, Stage
from table import Table

STAGES = {"first": first, "suite": suite, "targets": targets, "tools": tools}
REHEARSAL_SECONDS = 120


def usage_error(text):
    print(f"gpu_check.sh: {text} (see --help)", file=sys.stderr)
    sys.exit(2)


def fail(text):
    print(f"gpu_check.sh: {text}", file=sys.stderr)
    sys.exit(1)


def read_flags(words, switches=(), values=()):
    """Flags by name, and the other words."""
    flags, others, words = {}, [], list(words)
    while words:
        word, _, value = words.pop(0).partition("=")
        if word in switches and not value:
            flags[word] = True
        elif word in values:
            if not value and (not words or words[0].startswith("-")):
                usage_error(f"{word} needs a value")
            flags[word] = value or words.pop(0)
        elif word.startswith("-"):
            usage_error(f"unknown argument '{word}'")
        else:
            others.append(word)
    return flags, others


class Check:
    """What all stages share."""

    def __init__(self, programs, out, stages, is_emulated, gpus):
        self.programs = programs
        self.lockstep = programs.bin / "lockstep"
        self.is_emulated = is_emulated
        self.sizes = REHEARSAL if is_emulated else Sizes()
        self.num_gpus = 1 if is_emulated else len(gpus)
        self.logs = out / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        self.environment = {}
        # Tests that start the program find it in PATH, where it is not where it was built.
        self.environment["PATH"] = f"{programs.bin}:{os.environ.get('PATH', '')}"
        if is_emulated:
            self.environment["LOCKSTEP_EMULATED_GPUS"] = "1"
        else:
            folders = machine.library_folders() + os.environ.get("LD_LIBRARY_PATH", "").split(":")
            if any(folders):
                self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.table = Table(
            out,
            {
                "emulated": is_emulated,
                "date": now,
                "commit": programs.commit,
                "machine": machine.describe(gpus),
            },
            stages,
        )
        self.peer = Peer(
            programs.torch / "torch_cuda.py", "cpu" if is_emulated else "cuda", self.logs / "torch.log"
        )

    def run_stage(self, name):
        module = STAGES[name]
        stage = Stage(self, name, REHEARSAL_SECONDS if self.is_emulated else module.SECONDS)
        self.table.stage(name, 0, False)
        print(f"== {name}, at most {stage.limit:.0f} s", flush=True)
        module.run(stage)
        self.table.stage(name, stage.seconds(), True)
        print(f"== {name}: {stage.seconds():.0f} s", flush=True)


def show_machine(check, stage):
    for gpu in check.table.file["machine"]["gpus"]:
        check.table.line(stage, "GPU", "measured", detail=", ".join(gpu.values()))
    of = check.table.file["machine"]
    check.table.line(
        stage,
        "machine",
        "measured",
        detail=", ".join(
            [of["cpu"], f"{of['cores']} cores", of["os"], f"glibc {of['glibc']}", of["toolkit"]]
        ),
    )


def show_peer(check, stage):
    """Asked last, so that its import has been going on meanwhile."""
    try:
        hello = check.peer.greeting(limit=5)
        check.table.line(stage, "PyTorch", "measured", detail=f"{hello['torch']} on {hello['device']}")
    except Skipped as reason:
        check.table.line(stage, "PyTorch", "skipped", detail=reason)


def find_programs(flags):
    if "--from" in flags:
        folder = Path(flags["--from"])
    elif source_tree() is None:
        folder = HERE.parent
    elif "--emulated" in flags:
        folder = pack.build_emulated(source_tree())
    else:
        folder = pack.build_for_this_gpu(source_tree())
    return Programs(folder)


def run(words):
    flags, others = read_flags(words, switches=("--emulated",), values=("--from",))
    stages = list(STAGES)
    if others and (others[0] in STAGES or others[0] == "all"):
        stage = others.pop(0)
        stages = stages if stage == "all" else [stage]
    elif len(others) > 1:
        usage_error(f"unknown stage '{others[0]}'; use first, suite, targets, tools or all")
    if len(others) > 1:
        usage_error(f"unknown argument '{others[1]}'")
    is_emulated = "--emulated" in flags
    gpus = [{"name": "emulated"}] if is_emulated else machine.gpus()
    if not gpus:
        fail(
            "no NVIDIA GPU was found here (nvidia-smi lists none, and there is no /dev/nvidia0); "
            "run --emulated rehearses without one"
        )
    try:
        programs = find_programs(flags)
    except (ValueError, pack.BuildFailed) as error:
        fail(str(error))
    out = Path(others[0] if others else "gpu_check_out").resolve()
    check_all(programs, out, stages, is_emulated, gpus)


def check_all(programs, out, stages, is_emulated, gpus):
    begin = time.monotonic()
    try:
        out.mkdir(parents=True, exist_ok=True)
        check = Check(programs, out, stages, is_emulated, gpus)
    except OSError as error:
        fail(f"cannot write into {out}: {error.strerror}")
    try:
        show_machine(check, stages[0])
        for name in stages:
            check.run_stage(name)
        show_peer(check, stages[-1])
    finally:
        check.peer.close()
    archive = out / f"logs_{'_'.join(stages) if len(stages) < len(STAGES) else 'all'}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(check.logs, "logs")
    shutil.rmtree(check.logs)
    num_bad = check.table.num_bad(stages)
    rehearsed = "; a rehearsal on the emulated GPU: no figure here is a GPU's" if is_emulated else ""
    print(f"written: {out / 'gpu_check.json'} ({time.monotonic() - begin:.0f} s){rehearsed}")
    if num_bad:
        print(f"{num_bad} lines failed, missed their target or were not run")
        sys.exit(1)
    print("every line passed")


def make_pack(words):
    flags, others = read_flags(words, switches=("--sources",), values=("--arch",))
    if len(others) != 1:
        usage_error("pack needs the one file to write, such as p.tar.xz")
    tree = source_tree()
    if tree is None:
        usage_error("pack works in the project's source tree, not in a pack")
    if "--sources" in flags and "--arch" in flags:
        usage_error("--arch is for programs, and --sources packs none")
    arch = flags.get("--arch", "90")
    if not arch.isdigit():
        usage_error(f"--arch is '{arch}'; use a compute capability without the dot, such as 90")
    try:
        if "--sources" in flags:
            pack.pack_sources(tree, Path(others[0]).resolve())
        else:
            pack.pack_programs(tree, Path(others[0]).resolve(), arch)
    except (ValueError, pack.BuildFailed, OSError) as error:
        fail(str(error))


def write_measured(words):
    _, files = read_flags(words)
    tree = source_tree()
    if tree is None:
        usage_error("measured works in the project's source tree, not in a pack")
    try:
        measured.keep_and_write(tree / "docs", [Path(file) for file in files])
    except (ValueError, OSError) as error:
        fail(str(error))


def main():
    commands = {"run": run, "pack": make_pack, "measured": write_measured}
    words = sys.argv[1:]
    if not words or words[0] not in commands:
        usage_error(
            f"unknown command '{words[0]}'; use run, pack or measured"
            if words
            else "which command: run, pack or measured?"
        )
    commands[words[0]](words[1:])


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
