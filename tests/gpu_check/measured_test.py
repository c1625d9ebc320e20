"""docs/measured.md holds what was run on GPUs, and nothing else."""

import json

from fakes import TREE, FolderTest

import report
from pack import Problem
from report import SCHEMA

RESULT = {
    "schema": SCHEMA,
    "emulated": False,
    "date": "2026-01-31T23:59:59Z",
    "commit": "0123456789ab",
    "machine": {"gpus": [{"name": "NVIDIA H100", "driver_version": "580.1"}], "host": "a CPU, 16 cores"},
    "rows": [{"stage": "first", "name": "graph / floor", "figure": 1.5, "unit": "x", "asked": "<= 1.4",
              "verdict": "MISSED", "detail": "a|b"}],
}


class Measured(FolderTest):
    def write(self, **changes):
        path = self.folder / "gpu_check.json"
        path.write_text(json.dumps({**RESULT, **changes}))
        return path

    def test_the_page_of_the_project_is_what_the_files_beside_it_say(self):
        docs = TREE / "docs"
        self.assertEqual((docs / "measured.md").read_text(), report.page(docs / "measured"))

    def test_a_result_is_kept_and_every_line_of_it_shown_also_what_was_missed(self):
        report.keep_and_write(self.folder, [self.write()])
        name = "2026-01-31_235959_nvidia-h100.json"
        self.assertTrue((self.folder / "measured" / name).exists())
        page = (self.folder / "measured.md").read_text()
        self.assertIn("| graph / floor | 1.5 x | <= 1.4 | MISSED | a\\|b |", page)

    def test_a_rehearsal_or_a_dirty_commit_is_refused(self):
        for changes in ({"emulated": True}, {"commit": "0123-dirty"}, {"schema": "x"}):
            with self.assertRaisesRegex(Problem, "is not a result"):
                report.keep_and_write(self.folder, [self.write(**changes)])
            self.assertFalse((self.folder / "measured.md").exists())
