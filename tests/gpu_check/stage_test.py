"""What a stage makes of programs: each that fails, hangs, crashes or prints rubbish costs its own line."""

import json
import os
import sys
import time
from unittest import mock

from fakes import FolderTest

import stages
from report import Report
from stage import Skipped, run


class Programs(FolderTest):
    def run_code(self, code, limit):
        return run([sys.executable, "-c", code], self.folder / "log", limit)

    def test_one_that_hangs_is_ended_and_named(self):
        outcome = self.run_code("import os, time; print(os.getpid(), flush=True); time.sleep(1000)", 5)
        self.assertIn("still running", outcome.problem)
        deadline = time.monotonic() + 10
        while os.path.exists(f"/proc/{int(outcome.text)}") and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(os.path.exists(f"/proc/{int(outcome.text)}"))

    def test_what_stays_behind_a_program_that_ended_is_not_waited_for(self):
        begin = time.monotonic()
        outcome = self.run_code("import subprocess; subprocess.Popen(['sleep', '15'])", 20)
        self.assertEqual((outcome.code, outcome.problem), (0, ""))
        self.assertLess(time.monotonic() - begin, 14)

    def test_one_that_crashes_is_named_by_its_signal_and_last_line(self):
        outcome = self.run_code("import os; print('here', flush=True); os.abort()", 20)
        self.assertRegex(outcome.problem, r"ended by SIGABRT: .* \(log\)|exit code 134: ")

    def test_one_that_prints_without_end_fills_no_disk(self):
        self.run_code("import os\nwhile True: os.write(1, b'\\xff' * 65536)", 20)
        self.assertLessEqual(os.path.getsize(self.folder / "log"), 64 << 20)

    def test_one_that_is_not_there_is_an_outcome_too(self):
        self.assertIn("No such file", run([self.folder / "nothing"], self.folder / "log", 5).problem)


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
        details = ["none here", "KeyError: 'rows'", "ZeroDivisionError: division by zero", ""]
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped", "FAILED", "FAILED", "ok"])
        self.assertEqual([row["detail"] for row in self.rows()], details)

    def test_a_program_that_hangs_crashes_or_prints_rubbish_costs_its_own_line(self):
        stage = self.stage()
        for how in ("hang", "crash", ""):
            stage.check.environment["FAKE"] = f"devices:{how}" if how else ""
            stage.passes(how or "works", stage.check.lockstep, "devices", limit=2 if how == "hang" else 30)
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


class TestPrograms(FolderTest):
    def found(self, *tests, seconds=10):
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


class Convolutions(FolderTest):
    def lines(self, way):
        stage = self.stage()
        stage.check.environment["FAKE_CONVOLUTIONS"] = way
        stages.convolutions(stage)
        return {row["name"]: (row["verdict"], row["figure"], row["detail"]) for row in self.rows()}

    def test_are_measured_with_cudnn_and_without(self):
        found = self.lines("cuDNN 9.1.0")
        self.assertEqual(found["convolutions"], ("ok", None, "cuDNN 9.1.0"))
        name = "lenet, batch 2, tf32: products of patches / cuDNN"
        self.assertEqual(found[name], ("measured", 3.0, "30.0 us / 10.0 us"))

    def test_without_cudnn_say_so(self):
        found = self.lines("products of patches, without cuDNN: none")
        self.assertEqual(found["convolutions"], ("skipped", None, "products of patches, without cuDNN: none"))
        self.assertEqual(len(found), 2)


ANSWERS = """
import json, os, sys, time
print("a warning of some library")
print(json.dumps({"torch": "2.0", "device": sys.argv[1]}), flush=True)
for line in sys.stdin:
    what = json.loads(line)["precision"]
    if what == "hang": time.sleep(1000)
    if what == "die": os._exit(3)
    print("rubbish", flush=True)
    print(json.dumps({"problem": "OutOfMemory: x"} if what == "fail" else {"eager": 20.0}), flush=True)
"""


class Torch(FolderTest):
    def stage_with(self, source, limit=30):
        stage = self.stage(limit=limit)
        (stage.check.folder / "share" / "torch_cuda.py").write_text(source)
        patch = mock.patch.dict("os.environ", LOCKSTEP_TORCH_PYTHON="python3")
        patch.start()
        self.addCleanup(patch.stop)
        return stage

    def ratios(self, stage, *measures):
        row = {"median_step_seconds": 1e-5, "row_shape": [], "num_classes": 3}
        steps = {stages.Step("mlp:2-3", i, name): {"eager": row} for i, name in enumerate(measures)}
        stages.beside_torch(stage, steps, 2)
        return [(row["verdict"], row["figure"]) for row in self.rows() if "PyTorch eager" in row["name"]]

    def test_one_process_answers_all_questions(self):
        stage = self.stage_with(ANSWERS)
        self.assertEqual(self.ratios(stage, "step", "epoch"), [("measured", 2.0)] * 2)
        self.assertEqual(self.rows()[0]["detail"], "2.0 on cpu")

    def test_one_that_hangs_dies_or_fails_keeps_what_it_has_answered(self):
        for what, limit in (("hang", 10), ("die", 30), ("fail", 30)):
            found = self.ratios(self.stage_with(ANSWERS, limit), "step", what)
            self.assertEqual(found[-2:], [("measured", 2.0), ("FAILED", None)], what)

    def test_kinds_that_ours_lacks_are_compared_with_our_graph(self):
        stage = self.stage_with(ANSWERS.replace('"eager": 20.0', '"eager": 30.0, "graph": 20.0, "compiled": 15.0'))
        row = {"median_step_seconds": 1e-5, "row_shape": [28, 28, 1], "num_classes": 10}
        stages.beside_torch(stage, {stages.Step("lenet", 4, "bf16"): {"graph": row}}, 1, 0.8)
        found = {row["name"].split(": ")[-1]: (row["figure"], row["asked"]) for row in self.rows()[1:]}
        expected = {"eager / our graph": (3, ">= 1"), "graph / ours": (2, ">= 1"), "compiled / our graph": (1.5, ">= 0.8")}
        self.assertEqual(found, {f"PyTorch {name}": of for name, of in expected.items()})

    def test_without_pytorch_it_is_skipped(self):
        for source, phrase in (
            ("import json; print(json.dumps({'problem': 'No module named torch'}))", "No module"),
            ("raise SystemExit(1)", "does not start"),
        ):
            with self.assertRaisesRegex(Skipped, phrase):
                self.ratios(self.stage_with(source), "step")
