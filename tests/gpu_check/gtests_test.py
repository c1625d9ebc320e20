"""A test that fails, crashes or hangs costs itself."""

import time
from unittest import mock

from fakes import FolderTest

import programs
import stage as stages_of


class TestNames(FolderTest):
    def test_a_pattern_is_what_the_program_lists_for_it(self):
        program = self.folder / "listing"
        self.program(
            program,
            "import os, sys\n"
            "assert sys.argv[1:] == ['--gtest_list_tests', '--gtest_filter=A*:B.*'], sys.argv\n"
            "print('Running main() from main.cc\\nA.\\n  One\\n  Two/0  # GetParam() = 4\\nB.\\n  ' + os.environ['THREE'])",
        )
        names = programs.names_of(program, "A*:B.*", {"THREE": "Three"})
        self.assertEqual(names, ["A.One", "A.Two/0", "B.Three"])

    def test_a_name_is_itself(self):
        self.assertEqual(programs.names_of("no program", "A.One/0", {}), ["A.One/0"])


class TestPrograms(FolderTest):
    def run_tests(self, stage, seconds=60):
        (group,) = stage.check.programs.lists()["tests"]
        stage.tests(group, time.monotonic() + seconds, 2)

    def detail(self, *tests, seconds=60):
        stage = self.stage([f"A.{test}" for test in tests])
        stage.check.sizes = mock.Mock(tests_of_each=None)
        self.run_tests(stage, seconds)
        (row,) = self.rows()
        return row["verdict"], row["detail"]

    def test_all_others_run_before_and_after_it(self):
        verdict, detail = self.detail(
            "Works1", "Fails", "Works2", "Crashes", "Works3", "Skips", "Hangs", "Works4"
        )
        self.assertEqual(verdict, "FAILED")
        self.assertTrue(detail.startswith("4 ok, 1 skipped; "), detail)
        for phrase in ("A.Fails failed", "A.Crashes crashed", "A.Hangs hung"):
            self.assertIn(phrase, detail)

    def test_a_program_without_a_fault_is_ok(self):
        self.assertEqual(self.detail("Works1", "Skips", "Works2"), ("ok", "2 ok, 1 skipped"))

    def test_many_failures_end_it_and_say_what_was_left_out(self):
        tests = [f"Fails{i}" for i in range(stages_of.MAX_FAILURES + 3)]
        verdict, detail = self.detail(*tests)
        self.assertEqual(verdict, "FAILED")
        self.assertIn(", 3 not run; ", detail)

    def test_the_time_of_all_may_end_during_one(self):
        verdict, detail = self.detail("Works1", "Hangs", "Works2", seconds=1.5)
        self.assertEqual(verdict, "FAILED")
        self.assertIn("1 ok, 0 skipped, 1 not run; A.Hangs hung", detail)

    def test_a_program_that_prints_rubbish_has_run_no_test(self):
        stage = self.stage(["A.Works"])
        self.program(stage.check.programs.bin / "cuda_runtime_tests", "print('\\x00 rubbish')")
        self.run_tests(stage)
        (row,) = self.rows()
        self.assertEqual(row["verdict"], "FAILED")
        self.assertIn("1 not run; these did not run, such as A.Works", row["detail"])

    def test_a_program_that_says_that_it_cannot_run_here_is_skipped(self):
        stage = self.stage(["A.Works"])
        self.program(
            stage.check.programs.bin / "cuda_runtime_tests",
            "import sys\nprint('[  SKIPPED ] every test: no GPU')\nsys.exit(77)",
        )
        self.run_tests(stage)
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped"])
