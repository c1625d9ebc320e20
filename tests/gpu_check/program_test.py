"""Programs that hang, crash, print without end, or are not there."""

import os
import sys
import time
import unittest

from fakes import FolderTest

from stage import MOST_BYTES, run


def is_alive(process):
    try:
        with open(f"/proc/{process}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Programs(FolderTest):
    def run_code(self, code, limit, **options):
        return run([sys.executable, "-c", code], self.folder / "log", limit, **options)

    def test_one_that_hangs_is_ended_with_all_that_it_started(self):
        outcome = self.run_code(
            "import subprocess, time; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); time.sleep(1000)",
            1,
        )
        self.assertIsNone(outcome.code)
        self.assertIn("still running after 1 s", outcome.problem)
        child = int(outcome.text)
        deadline = time.monotonic() + 10
        while is_alive(child) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(is_alive(child))

    def test_what_stays_behind_a_program_that_ended_is_ended_and_not_waited_for(self):
        outcome = self.run_code("import subprocess; print(subprocess.Popen(['sleep', '1000']).pid)", 20)
        self.assertEqual((outcome.code, outcome.problem), (0, ""))
        self.assertLess(outcome.seconds, 15)
        deadline = time.monotonic() + 10
        while is_alive(int(outcome.text)) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertFalse(is_alive(int(outcome.text)))

    def test_one_that_crashes_is_named_by_its_signal_and_last_line(self):
        outcome = self.run_code("import os; print('here', flush=True); os.abort()", 20)
        self.assertEqual(outcome.problem, "ended by SIGABRT: here (log)")

    def test_one_that_prints_without_end_fills_neither_the_disk_nor_the_time(self):
        outcome = self.run_code("import os\nwhile True: os.write(1, b'\\xff' * 65536)", 20)
        self.assertIsNone(outcome.code)
        self.assertLess(os.path.getsize(self.folder / "log"), MOST_BYTES + 1)

    def test_all_that_it_printed_last_is_there(self):
        outcome = self.run_code("print('x' * 300000); print('last')", 20)
        self.assertTrue(outcome.text.endswith("last\n"))

    def test_one_that_prints_nothing_for_too_long_is_ended(self):
        steps = "import time\nfor i in range(6): print(i, flush=True); time.sleep(0.4)\n"
        self.assertEqual(self.run_code(steps, 30, quiet=3).code, 0)
        outcome = self.run_code("import time; print('here', flush=True); time.sleep(1000)", 30, quiet=1)
        self.assertIsNone(outcome.code)
        self.assertLess(outcome.seconds, 15)

    def test_one_that_is_not_there_is_an_outcome_too(self):
        outcome = run([self.folder / "nothing"], self.folder / "log", 5)
        self.assertIn("No such file", outcome.problem)


if __name__ == "__main__":
    unittest.main()
