"""The result of a check, and the page that is made of results.

gpu_check.json, replaced as a whole after every line, and so valid at every instant: schema; emulated, true in a
rehearsal, whose figures say nothing about a GPU; date, UTC; commit of the sources, "-dirty" behind it where files
differ; machine; rows in the order in which they were found, of each:
stage, name; figure, null where the line says yes or no; unit; asked, what it should be, such as ">= 2"; verdict: ok,
MISSED (the target), FAILED (the program), measured, skipped, not run; detail, what it was made of, or why.
"""

import json
import os
import shutil
import threading
from pathlib import Path

from pack import Problem

SCHEMA = "lockstep.gpu_check/4"
HEAD = """# What was measured on GPUs

`scripts/gpu_check.sh measured` writes this page from the files in [docs/measured](measured), the `gpu_check.json` of each
run of `scripts/gpu_check.sh run` on a GPU. It shows the lines that have a target, met or missed, and those that failed;
the files have all.
"""


def figure_of(row):
    return "" if row["figure"] is None else f"{row['figure']:.4g} {row['unit']}".strip()


class Report:
    """The lines of a check, in a folder."""

    def __init__(self, folder, head):
        self._path = folder / "gpu_check.json"
        self.file, self._writing = {"schema": SCHEMA, **head, "rows": []}, threading.Lock()
        self.write()

    def write(self):
        temporary = self._path.with_suffix(".json.new")
        temporary.write_text(json.dumps(self.file, indent=1) + "\n")
        os.replace(temporary, self._path)

    def line(self, stage, name, verdict, figure=None, unit="", asked="", detail=""):
        detail = " ".join(str(detail).split())
        row = dict(stage=stage, name=name, figure=figure, unit=unit, asked=asked, verdict=verdict, detail=detail)
        with self._writing:  # parts may run beside each other
            self.file["rows"].append(row)
            print(f"{name:<58} {figure_of(row):>14}  {asked:<9} {verdict:<8} {detail}".rstrip(), flush=True)
            self.write()

    def num_bad(self):
        return sum(row["verdict"] in ("MISSED", "FAILED", "not run") for row in self.file["rows"])


def read(path):
    """A result. Raises Problem unless it is one of a GPU, of a commit that can be built again."""
    try:
        result = json.loads(path.read_text())
        if result["schema"] == SCHEMA and not result["emulated"] and not result["commit"].endswith("-dirty"):
            return result
    except (ValueError, TypeError, KeyError):
        pass
    raise Problem(f"{path} is not a result ({SCHEMA}) of a GPU and of a commit that can be built again")


def page(folder):
    """The text of docs/measured.md for the files of a folder, the newest first."""
    lines = []
    for path in sorted(folder.glob("*.json"), reverse=True):
        result = read(path)
        gpus = "; ".join(", ".join(gpu.values()) for gpu in result["machine"]["gpus"])
        lines += [f"\n## {gpus}, {result['date']}\n", result["machine"]["host"]]
        lines += [f"Commit {result['commit']}, file [{path.name}](measured/{path.name}).\n"]
        lines += ["| line | figure | asked | verdict | detail |", "|---|---|---|---|---|"]
        for row in result["rows"]:
            if row["asked"] or row["verdict"] not in ("ok", "measured"):
                cells = [row["name"], figure_of(row), row["asked"], row["verdict"], row["detail"]]
                lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return HEAD + "\n".join(lines) + "\n"


def keep_and_write(docs, files):
    """Keeps results under docs/measured, then writes docs/measured.md."""
    results = [(read(Path(file)), file) for file in files]
    (docs / "measured").mkdir(exist_ok=True)
    for result, file in results:
        date = result["date"][:19].replace("T", "_").replace(":", "")
        gpu = "-".join(result["machine"]["gpus"][0]["name"].lower().split())
        shutil.copy(file, docs / "measured" / f"{date}_{gpu}.json")
    (docs / "measured.md").write_text(page(docs / "measured"))
