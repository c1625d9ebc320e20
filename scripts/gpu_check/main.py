"""The command line of scripts/gpu_check.sh; its --help is that script's opening comment."""

import argparse
import datetime
import os
import shutil
import sys
import tarfile
from pathlib import Path

import machine
import measured
import pack
from programs import HERE, Programs, source_tree
from report import Report
from stage import Stage
from stages import REHEARSAL, REHEARSAL_SECONDS, STAGES, Sizes


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"gpu_check.sh: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


def fail(text):
    print(f"gpu_check.sh: {text}", file=sys.stderr)
    sys.exit(1)


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
        # Tests that start the program find it in PATH, where it is not where it was built.
        self.environment = {"PATH": f"{programs.bin}:{os.environ.get('PATH', '')}"}
        if is_emulated:
            self.environment["LOCKSTEP_EMULATED_GPUS"] = "1"
        else:
            folders = [*machine.library_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
            self.environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        head = {"emulated": is_emulated, "date": now, "commit": programs.commit, "machine": machine.describe(gpus)}
        self.report = Report(out, head, stages)

    def run_stage(self, name):
        function, seconds = STAGES[name]
        stage = Stage(self, name, REHEARSAL_SECONDS if self.is_emulated else seconds)
        self.report.stage(name, 0, False)
        print(f"== {name}, at most {stage.limit:.0f} s", flush=True)
        function(stage)
        self.report.stage(name, stage.seconds(), True)
        print(f"== {name}: {stage.seconds():.0f} s", flush=True)

    def show_machine(self, stage):
        of = self.report.file["machine"]
        for gpu in of["gpus"]:
            self.report.line(stage, "GPU", "measured", detail=", ".join(gpu.values()))
        detail = f"{of['cpu']}, {of['cores']} cores, {of['os']}, glibc {of['glibc']}, {of['toolkit']}"
        self.report.line(stage, "machine", "measured", detail=detail)


def find_programs(words):
    if words.folder:
        return Programs(Path(words.folder))
    tree = source_tree()
    if tree is None:
        return Programs(HERE.parent)
    return Programs(pack.build_emulated(tree) if words.emulated else pack.build_for_this_gpu(tree))


def run(words):
    names = list(words.words)
    stages = list(STAGES)
    if names and names[0] in (*STAGES, "all"):
        stages = stages if names[0] == "all" else names[:1]
        names = names[1:]
    if len(names) > 1:
        PARSER.error(f"unknown stage '{names[0]}'; use {', '.join(STAGES)} or all")
    gpus = [{"name": "emulated"}] if words.emulated else machine.gpus()
    if not gpus:
        fail("no NVIDIA GPU was found here (nvidia-smi lists none, and there is no /dev/nvidia0); "
             "run --emulated rehearses without one")  # fmt: skip
    programs = find_programs(words)
    out = Path(names[0] if names else "gpu_check_out").resolve()
    out.mkdir(parents=True, exist_ok=True)
    check = Check(programs, out, stages, words.emulated, gpus)
    check.show_machine(stages[0])
    for name in stages:
        check.run_stage(name)
    archive = out / f"logs_{'_'.join(stages) if len(stages) < len(STAGES) else 'all'}.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(check.logs, "logs")
    shutil.rmtree(check.logs)
    rehearsed = "; a rehearsal on the emulated GPU: no figure here is a GPU's" if words.emulated else ""
    print(f"written: {out / 'gpu_check.json'}{rehearsed}")
    num_bad = check.report.num_bad(stages)
    if num_bad:
        print(f"{num_bad} lines failed, missed their target or were not run")
        sys.exit(1)
    print("every line passed")


def in_source_tree(command):
    tree = source_tree()
    if tree is None:
        PARSER.error(f"{command} works in the project's source tree, not in a pack")
    return tree


def make_pack(words):
    if len(words.words) != 1:
        PARSER.error("pack needs the one file to write, such as p.tar.gz")
    if not words.arch.isdigit():
        PARSER.error(f"--arch is '{words.arch}'; use a compute capability without the dot, such as 90")
    pack.pack_programs(in_source_tree("pack"), Path(words.words[0]).resolve(), words.arch)


def keep_measured(words):
    measured.keep_and_write(in_source_tree("measured") / "docs", [Path(file) for file in words.words])


PARSER = Parser(add_help=False, allow_abbrev=False)
COMMANDS = {"run": run, "pack": make_pack, "measured": keep_measured}


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        PARSER.error(f"unknown command '{name}'; use run, pack or measured")
    PARSER.add_argument("words", nargs="*")
    if name == "run":
        PARSER.add_argument("--from", dest="folder")
        PARSER.add_argument("--emulated", action="store_true")
    if name == "pack":
        PARSER.add_argument("--arch", default="90")
    try:
        COMMANDS[name](PARSER.parse_intermixed_args(sys.argv[2:]))
    except (ValueError, OSError, pack.BuildFailed) as error:
        fail(str(error))


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
