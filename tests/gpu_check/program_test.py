"""Programs that hang, crash, print without end, or are not there."""

import os
import sys
import time

from fakes import FolderTest

from stage import run


class Programs(FolderTest):
    def run_code(self, code, limit):
        return run([sys.executable, "-c", code], self.folder / "log", limit)

    def test_one_that_hangs_is_ended_and_named(self):
        outcome = self.run_code("import os, time; print(os.getpid(), flush=True); time.sleep(1000)", 1)
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
