"""The result's files are whole after every line, and stages add up."""

import json

from fakes import FolderTest

from report import Report
from stage import Failed, Skipped

HEAD = {"emulated": False, "date": "2026-01-31T23:59:59Z", "commit": "abc", "machine": {}}


class Reports(FolderTest):
    def names(self):
        return [row["name"] for row in json.loads((self.folder / "gpu_check.json").read_text())["rows"]]

    def test_both_files_have_a_line_as_soon_as_it_is_found(self):
        report = Report(self.folder, HEAD, ["first"])
        for number, name in enumerate(["one", "two"], 1):
            report.line("first", name, "ok", figure=1.25, unit="us")
            self.assertEqual(len(self.names()), number)
            self.assertEqual(len((self.folder / "table.txt").read_text().splitlines()), number)

    def test_stages_run_one_by_one_add_up_and_one_run_again_replaces_its_lines(self):
        for stage, name in (("first", "a"), ("suite", "b"), ("first", "c")):
            report = Report(self.folder, HEAD, [stage])
            report.stage(stage, 1, True)
            report.line(stage, name, "ok")
        self.assertEqual(self.names(), ["b", "c"])

    def test_lines_of_another_commit_or_of_a_rehearsal_do_not_stay(self):
        for other in ({"commit": "def"}, {"emulated": True}):
            report = Report(self.folder, {**HEAD, **other}, ["first"])
            report.stage("first", 1, True)
            report.line("first", "old", "ok")
            Report(self.folder, HEAD, ["suite"])
            self.assertEqual(self.names(), [])

    def test_another_file_of_that_name_is_replaced(self):
        for text in ("{", "[]", '{"schema": 3}'):
            (self.folder / "gpu_check.json").write_text(text)
            Report(self.folder, HEAD, ["first"])
            self.assertEqual(self.names(), [])


class Parts(FolderTest):
    def test_whatever_a_part_raises_is_one_line_and_the_next_part_runs(self):
        stage = self.stage()

        def raises(stage, error):
            raise error

        for error in (
            Failed("why"),
            Skipped("none here"),
            KeyError("rows"),
            ZeroDivisionError("division by zero"),
        ):
            stage.part("part", raises, error)
        stage.part("last", lambda stage: stage.line("last", "ok"))
        self.assertEqual(
            [(row["verdict"], row["detail"]) for row in self.rows()],
            [
                ("FAILED", "why"),
                ("skipped", "none here"),
                ("FAILED", "KeyError: 'rows'"),
                ("FAILED", "ZeroDivisionError: division by zero"),
                ("ok", ""),
            ],
        )

    def test_a_program_that_hangs_crashes_or_prints_rubbish_costs_its_own_line(self):
        stage = self.stage()
        program = stage.check.lockstep
        for how in ("hang", "crash", "rubbish", ""):
            name = how or "works"
            stage.passes(name, [program, "devices"], 2, {"FAKE": f"devices:{how}"} if how else {})
        details = {row["name"]: (row["verdict"], row["detail"]) for row in self.rows()}
        self.assertEqual(details["hang"][0], "FAILED")
        self.assertIn("still running after 2 s", details["hang"][1])
        self.assertIn("ended by SIGSEGV", details["crash"][1])
        self.assertEqual(details["works"][0], "ok")

    def test_a_stage_whose_time_is_spent_says_what_was_not_run(self):
        stage = self.stage(limit=0)
        stage.part("later", lambda stage: self.fail("it ran"))
        self.assertEqual([row["verdict"] for row in self.rows()], ["not run"])

    def test_a_target_is_met_or_missed_but_never_in_a_rehearsal(self):
        stage = self.stage()
        stage.judge("rehearsed", 3.0, "<=", 1)
        stage.check.is_emulated = False
        stage.judge("missed", 3.0, "<=", 1)
        stage.judge("met", 3.0, ">=", 2)
        self.assertEqual([row["verdict"] for row in self.rows()], ["measured", "MISSED", "ok"])
        self.assertEqual(stage.check.report.num_bad(["first"]), 1)
