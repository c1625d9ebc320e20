"""The result of a check: every line is shown, appended to table.txt and in gpu_check.json as soon as it is found.

gpu_check.json, replaced as a whole and so valid at every instant:
    schema      lockstep.gpu_check/3
    emulated    true: a rehearsal, whose figures say nothing about a GPU
    date        when the first stage began, UTC
    commit      of the sources that the programs were built from; "-dirty" behind it: and changes
    machine     what machine.py found
    stages      by name: seconds it took, complete: whether it came to its end
    rows        in the order in which they were found; of each:
        stage, name
        figure     a number, or null where the line says yes or no
        unit       of the figure
        asked      what it should be, such as ">= 2", or ""
        verdict    ok, MISSED (the target), FAILED (the program), measured, skipped, not run
        detail     what it was made of, or why
"""

import json
import os

SCHEMA = "lockstep.gpu_check/3"
BAD = ("MISSED", "FAILED", "not run")


def shown(row):
    figure = "" if row["figure"] is None else f"{row['figure']:.4g} {row['unit']}".strip()
    return f"{row['name']:<58} {figure:>14}  {row['asked']:<9} {row['verdict']:<8} {row['detail']}".rstrip()


class Report:
    """Lines of stages in a folder. Other stages' lines of an earlier run of the same commit stay."""

    def __init__(self, folder, head, stages):
        self._json, self._text = folder / "gpu_check.json", folder / "table.txt"
        self.file = {"schema": SCHEMA, **head, "stages": {}, "rows": []}
        try:
            before = json.loads(self._json.read_text())
            if all(before[key] == self.file[key] for key in ("schema", "emulated", "commit")):
                others = {name: of for name, of in before["stages"].items() if name not in stages}
                rows = [row for row in before["rows"] if row["stage"] in others]
                self.file.update(date=before["date"], stages=others, rows=rows)
        except (OSError, ValueError, KeyError, TypeError):
            pass  # no earlier run, or something else of that name
        self._text.write_text("".join(shown(row) + "\n" for row in self.file["rows"]))
        self._write()

    def _write(self):
        temporary = self._json.with_suffix(".json.new")
        temporary.write_text(json.dumps(self.file, indent=1) + "\n")
        os.replace(temporary, self._json)

    def line(self, stage, name, verdict, figure=None, unit="", asked="", detail=""):
        row = {"stage": stage, "name": name, "figure": figure, "unit": unit, "asked": asked, "verdict": verdict}
        row["detail"] = " ".join(str(detail).split())
        self.file["rows"].append(row)
        print(shown(row), flush=True)
        with open(self._text, "a") as file:
            file.write(shown(row) + "\n")
        self._write()

    def stage(self, name, seconds, is_complete):
        self.file["stages"][name] = {"seconds": round(seconds, 1), "complete": is_complete}
        self._write()

    def num_bad(self, stages):
        return sum(row["verdict"] in BAD and row["stage"] in stages for row in self.file["rows"])
