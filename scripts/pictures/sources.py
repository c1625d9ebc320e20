"""Where the pictures' values are from: the plans that `lockstep plan` prints, and the programs' expected outputs."""

import json
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
program = ROOT / "build/release/bin/lockstep"  # scripts/pictures.py --program sets it


def plan(*words):
    """What `lockstep plan WORDS` prints."""
    return subprocess.run(
        [str(program), "plan", *map(str, words)], check=True, text=True, stdout=subprocess.PIPE
    ).stdout


def all_reduce_steps(name, ranks, elements, *flags):
    """The transfers of each step of an all-reduce: a title, and (sender, receiver, "add" or "copy", begin, end)."""
    steps = []
    for line in plan("all-reduce", "--plan", name, "--ranks", ranks, "--elements", elements, *flags).splitlines():
        if title := re.match(r"step \d+: (.*)", line):
            steps.append((title[1], []))
        elif transfer := re.match(r"  rank (\d+) -> rank (\d+)  (add|copy) +\[(\d+), (\d+)\)", line):
            sender, receiver, kind, begin, end = transfer.groups()
            steps[-1][1].append((int(sender), int(receiver), kind, int(begin), int(end)))
    return steps


def expected(*names):
    """The expected outputs, one after the other, of the programs that have these names, whatever their numbers."""
    programs = [path for name in names for path in (ROOT / "tutorials").glob(f"[0-9][0-9]_{name}.cpp")]
    outputs = [ROOT / "tutorials/expected" / f"{path.name[:2]}.txt" for path in programs]
    if not any(path.is_file() for path in outputs):
        raise SystemExit(f"pictures: no tutorial is called {' or '.join(names)}, or it has no expected output")
    return "".join(path.read_text(encoding="utf-8") for path in outputs if path.is_file()).replace("~", "")


def find(pattern, text):
    """The groups of the only or first match; an error if there is none, since the output has then changed."""
    match = re.search(pattern, text, re.M)
    if not match:
        raise SystemExit(f"pictures: no expected output has {pattern!r}; draw what it has now")
    return match.groups()


def find_all(pattern, text):
    matches = re.findall(pattern, text, re.M)
    if not matches:
        raise SystemExit(f"pictures: no expected output has {pattern!r}; draw what it has now")
    return matches


def topology(name):
    return json.loads((ROOT / f"simulate/predict/topologies/{name}.json").read_text(encoding="utf-8"))


def digit(row):
    """A row of the digits: its label, and its 8 x 8 pixels from 0 to 16."""
    line = (ROOT / "datasets/digits_rows.txt").read_text(encoding="utf-8").splitlines()[row]
    pixels = [int(letter, 17) for letter in line[1:]]
    return int(line[0]), [pixels[8 * i : 8 * i + 8] for i in range(8)]
