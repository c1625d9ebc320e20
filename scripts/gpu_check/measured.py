"""Writes docs/measured.md from the results that are kept under docs/measured."""

import json
import shutil
from pathlib import Path

from report import SCHEMA

HEAD = """# What was measured on GPUs

Written by `scripts/gpu_check.sh measured` from the files in [docs/measured](measured), each the
`gpu_check.json` of one run of `scripts/gpu_check.sh run` on a machine with a GPU: every line that was found
there, met or missed. Rehearsals on the emulated GPU are refused here.
"""
NONE = """
**There is no result yet.** No GPU could be had so far: no time of one has been measured, and nothing has been
verified on one. What runs without a GPU is in docs/gpus.md.
"""


def read(path):
    """A result. Raises ValueError unless it is one of a GPU."""
    try:
        result = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        raise ValueError(f"{path} is no result of gpu_check.sh run ({SCHEMA})")
    if result["emulated"] is not False:
        raise ValueError(f"{path} is a rehearsal on the emulated GPU, and no measurement")
    if result["commit"].endswith("-dirty") or result["commit"] == "unknown":
        raise ValueError(f"{path} is of commit '{result['commit']}': nobody could measure that again")
    return result


def _file_name(result):
    gpu = "".join(c if c.isalnum() else "-" for c in result["machine"]["gpus"][0]["name"]).strip("-").lower()
    return f"{result['date'][:10]}_{result['date'][11:19].replace(':', '')}_{gpu}.json"


def _cell(text):
    return str(text).replace("|", "\\|")


def section(name, result):
    """A result as Markdown."""
    machine = result["machine"]
    gpus = "; ".join(", ".join(gpu.values()) for gpu in machine["gpus"])
    lines = [
        f"\n## {machine['gpus'][0]['name']}, {result['date']}\n",
        f"Commit {result['commit']}, file [{name}](measured/{name}).\n",
        f"- GPUs: {gpus}",
        f"- {machine['cpu']}, {machine['cores']} cores, {machine['os']}, glibc {machine['glibc']}, "
        f"{machine['toolkit']}",
    ]
    for stage, of in result["stages"].items():
        end = "" if of["complete"] else ", cut off: what follows was found before"
        lines += [
            f"\n### {stage} ({of['seconds']:.0f} s{end})\n",
            "| line | figure | asked | verdict | detail |",
            "|---|---|---|---|---|",
        ]
        for row in result["rows"]:
            if row["stage"] == stage:
                figure = "" if row["figure"] is None else f"{row['figure']:.4g} {row['unit']}".strip()
                cells = (row["name"], figure, row["asked"], row["verdict"], row["detail"])
                lines.append("| " + " | ".join(map(_cell, cells)) + " |")
    return "\n".join(lines) + "\n"


def page(folder):
    """The text of docs/measured.md for the files of a folder, the newest first."""
    results = [(path.name, read(path)) for path in sorted(folder.glob("*.json"), reverse=True)]
    return HEAD + ("".join(section(name, result) for name, result in results) or NONE)


def keep_and_write(docs, files):
    """Keeps results under docs/measured, then writes docs/measured.md. Raises ValueError for what is none."""
    results = [(read(Path(file)), file) for file in files]
    folder = docs / "measured"
    folder.mkdir(exist_ok=True)
    for result, file in results:
        shutil.copy(file, folder / _file_name(result))
    (docs / "measured.md").write_text(page(folder))
    print(f"written: {docs / 'measured.md'}, {len(list(folder.glob('*.json')))} results")
