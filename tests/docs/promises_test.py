"""tests/engine/parallel/README.md: each test that it names is there."""

import re
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]


class Promises(unittest.TestCase):
    def test_each_has_the_tests_that_its_row_names(self):
        sources = "".join(path.read_text() for path in TESTS.rglob("*_test.cpp"))
        there = {f"{suite}.{name}" for suite, name in re.findall(r"^TEST(?:_[FP])?\((\w+), (\w+)\)", sources, re.M)}
        rows = [line for line in (TESTS / "engine" / "parallel" / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
        self.assertGreater(len(rows), 40)
        for row in rows:
            named = re.findall(r"`(\w+\.\w+)`", row.split("|")[2])
            self.assertTrue(named, row)
            for test in named:
                self.assertIn(test, there)


if __name__ == "__main__":
    unittest.main()
