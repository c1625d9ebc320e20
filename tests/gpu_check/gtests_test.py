"""A test that fails, crashes or hangs costs itself."""

from fakes import FolderTest


class TestPrograms(FolderTest):
    def found(self, *tests, seconds=3):
        stage = self.stage()
        stage.tests("cuda_runtime_tests", seconds, {"TESTS": " ".join(f"A.{test}" for test in tests)})
        (row,) = self.rows()
        return row["verdict"], row["detail"]

    def test_all_others_run_before_and_after_it(self):
        verdict, detail = self.found("Works1", "Fails", "Works2", "Crashes", "Works3", "Skips", "Hangs")
        self.assertEqual(verdict, "FAILED")
        self.assertEqual(detail, "3 ok, 1 skipped; others did not run; A.Fails; A.Crashes; A.Hangs")

    def test_a_program_without_a_fault_is_ok(self):
        self.assertEqual(self.found("Works1", "Skips", "Works2"), ("ok", "2 ok, 1 skipped"))

    def test_many_failures_end_it_and_say_that_others_were_left_out(self):
        verdict, detail = self.found(*[f"Fails{i}" for i in range(11)], seconds=60)
        self.assertEqual(verdict, "FAILED")
        self.assertIn("others did not run", detail)

    def test_a_program_that_prints_rubbish_has_run_no_test(self):
        stage = self.stage()
        self.program(stage.check.folder / "bin" / "cuda_runtime_tests", "print('\\x00 rubbish')")
        stage.tests("cuda_runtime_tests", 30, {})
        self.assertEqual([row["verdict"] for row in self.rows()], ["FAILED"])

    def test_a_program_that_says_that_it_cannot_run_here_is_skipped(self):
        stage = self.stage()
        program = stage.check.folder / "bin" / "cuda_runtime_tests"
        self.program(program, "import sys\nprint('[  SKIPPED ] every test: no GPU')\nsys.exit(77)")
        stage.tests("cuda_runtime_tests", 30, {})
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped"])
