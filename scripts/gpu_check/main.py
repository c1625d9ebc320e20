"""The command line of scripts/gpu_check.sh; its --help is that script's opening comment."""

import argparse
import datetime
import json
import os
import shutil
import sys
from pathlib import Path

import machine
import pack
import report
from stage import Stage
from stages import REHEARSAL, STAGES, Sizes


class Parser(argparse.ArgumentParser):
    def error(self, message):
        print(f"gpu_check.sh: {message} (see --help)", file=sys.stderr)
        sys.exit(2)


class Check:
    """What all stages share. folder: of the programs, laid out as a pack."""

    def __init__(self, folder, out, is_emulated, gpus):
        of = json.loads((folder / "pack.json").read_text())
        self.folder, self.names, self.cuda, self.lockstep = folder, of["programs"], of["cuda"], folder / "bin/lockstep"
        self.is_emulated, self.num_gpus, self.sizes = is_emulated, len(gpus), REHEARSAL if is_emulated else Sizes()
        self.logs = out / "logs"
        shutil.rmtree(self.logs, ignore_errors=True)
        self.logs.mkdir(parents=True)
        libraries = [] if is_emulated else [*machine.library_folders(), os.environ.get("LD_LIBRARY_PATH", "")]
        # Tests that start the program find it in PATH, where it is not where it was built.
        self.environment = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "LOCKSTEP_EMULATED_GPUS": "1",
                            "LD_LIBRARY_PATH": ":".join(filter(None, libraries))}  # fmt: skip
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        on = {"gpus": gpus, "host": machine.host()}
        head = {"emulated": is_emulated, "date": date, "commit": of["commit"], "machine": on}
        self.report = report.Report(out, head)


def run(words, stages, out, tree):
    gpus = [{"name": "emulated"}] if words.emulated else machine.gpus()
    if not gpus:
        raise pack.Problem("no NVIDIA GPU was found here (nvidia-smi lists none, and there is no /dev/nvidia0); "
                           "run --emulated rehearses without one")  # fmt: skip
    folder = Path(words.folder or pack.HERE.parent).resolve()
    if tree and not words.folder:
        here = ["emulated"] if words.emulated else ["cuda", "-DLOCKSTEP_QUICK=ON"]
        folder = pack.build(tree, here[0], *here)
    if not (folder / "pack.json").exists():
        raise pack.Problem(f"{folder} is neither an unpacked pack nor a folder that gpu_check.sh has built")
    out.mkdir(parents=True, exist_ok=True)
    check = Check(folder, out, words.emulated, gpus)
    for name in stages:
        function, seconds = STAGES[name]
        function(Stage(check, name, 100 if words.emulated else seconds))
    print(f"written: {out / 'gpu_check.json'}{', a rehearsal: no figure is of a GPU' if words.emulated else ''}")
    num_bad = check.report.num_bad()
    print(f"{num_bad} lines failed, missed their target or were not run" if num_bad else "every line passed")
    return 1 if num_bad else 0


def main():
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("command", choices=("run", "pack", "measured"))
    parser.add_argument("words", nargs="*")
    parser.add_argument("--from", dest="folder")
    parser.add_argument("--emulated", action="store_true")
    parser.add_argument("--arch", type=int, default=90)
    words = parser.parse_intermixed_args()
    tree, names, stages = pack.source_tree(), words.words, list(STAGES)
    if words.command != "run" and tree is None:
        parser.error(f"{words.command} works in the project's source tree, not in a pack")
    if words.command == "pack" and len(names) != 1:
        parser.error("pack needs the one file to write, such as p.tar.gz")
    if words.command == "run" and names and names[0] in (*STAGES, "all"):
        stages, names = stages if names[0] == "all" else names[:1], names[1:]
    if words.command == "run" and len(names) > 1:
        parser.error(f"unknown stage '{names[0]}'; use {', '.join(STAGES)} or all")
    try:
        if words.command == "run":
            sys.exit(run(words, stages, Path(names[0] if names else "gpu_check_out").resolve(), tree))
        if words.command == "pack":
            pack.pack(tree, Path(names[0]).resolve(), words.arch)
        else:
            report.keep_and_write(tree / "docs", names)
    except (pack.Problem, OSError) as error:
        print(f"gpu_check.sh: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    main()
