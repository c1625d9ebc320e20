"""The result's file is whole after every line."""

import json

from fakes import FolderTest

from report import Report
from stage import Skipped


class Reports(FolderTest):
    def test_the_file_has_a_line_as_soon_as_it_is_found(self):
        report = Report(self.folder, {"emulated": False, "commit": "abc"})
        for number, name in enumerate(["one", "two"], 1):
            report.line("first", name, "ok", figure=1.25, unit="us")
            self.assertEqual(len(json.loads((self.folder / "gpu_check.json").read_text())["rows"]), number)


class Parts(FolderTest):
    def test_whatever_a_part_raises_is_one_line_and_the_next_part_runs(self):
        stage = self.stage()

        def raises(error):
            raise error

        for error in (Skipped("none here"), KeyError("rows"), ZeroDivisionError("division by zero")):
            stage.part("part", raises, error)
        stage.part("last", stage.line, "last", "ok")
        self.assertEqual(
            [(row["verdict"], row["detail"]) for row in self.rows()],
            [
                ("skipped", "none here"),
                ("FAILED", "KeyError: 'rows'"),
                ("FAILED", "ZeroDivisionError: division by zero"),
                ("ok", ""),
            ],
        )

    def test_a_program_that_hangs_crashes_or_prints_rubbish_costs_its_own_line(self):
        stage = self.stage()
        for how in ("hang", "crash", ""):
            stage.check.environment["FAKE"] = f"devices:{how}" if how else ""
            stage.passes(how or "works", stage.check.lockstep, "devices", limit=2)
        details = {row["name"]: (row["verdict"], row["detail"]) for row in self.rows()}
        self.assertEqual(details["hang"][0], "FAILED")
        self.assertIn("still running", details["hang"][1])
        self.assertEqual(details["crash"][0], "FAILED")
        self.assertEqual(details["works"][0], "ok")

    def test_a_stage_whose_time_is_spent_says_what_was_not_run(self):
        self.stage(limit=0).part("later", self.fail, "it ran")
        self.assertEqual([row["verdict"] for row in self.rows()], ["not run"])

    def test_a_target_is_met_or_missed_but_never_in_a_rehearsal(self):
        stage = self.stage()
        stage.judge("rehearsed", 3.0, "<=", 1)
        stage.check.is_emulated = False
        stage.judge("missed", 3.0, "<=", 1)
        stage.judge("met", 3.0, ">=", 2)
        self.assertEqual([row["verdict"] for row in self.rows()], ["measured", "MISSED", "ok"])
        self.assertEqual(stage.check.report.num_bad(), 1)
