"""PyTorch's process: missing, hanging, dying, answering rubbish."""

from unittest import mock

from fakes import FolderTest

import stages
from stage import Skipped

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
        row = {"median_step_seconds": 1e-5}
        stages.beside_torch(stage, {(name, i, (2, 3)): {"eager": row} for i, name in enumerate(measures)}, 2)
        return [(row["verdict"], row["figure"]) for row in self.rows() if "PyTorch eager" in row["name"]]

    def test_one_process_answers_all_questions(self):
        stage = self.stage_with(ANSWERS)
        self.assertEqual(self.ratios(stage, "step", "epoch"), [("measured", 2.0)] * 2)
        self.assertEqual(self.rows()[0]["detail"], "2.0 on cpu")

    def test_one_that_hangs_dies_or_fails_keeps_what_it_has_answered(self):
        for what, limit in (("hang", 3), ("die", 30), ("fail", 30)):
            found = self.ratios(self.stage_with(ANSWERS, limit), "step", what)
            self.assertEqual(found[-2:], [("measured", 2.0), ("FAILED", None)], what)

    def test_without_pytorch_it_is_skipped(self):
        for source, phrase in (
            ("import json; print(json.dumps({'problem': 'No module named torch'}))", "No module"),
            ("raise SystemExit(1)", "does not start"),
        ):
            with self.assertRaisesRegex(Skipped, phrase):
                self.ratios(self.stage_with(source), "step")
