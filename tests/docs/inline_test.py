"""What a page says between its blocks, beside what the program and the project have."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "check_docs"))

from inline import find_problems


class FakeProgram:
    subcommands = {"train", "bench"}

    def flags_of(self, words):
        return {"train": {"--epochs"}, "bench": {"--json"}, "bench step": {"--batch"}}[" ".join(words)]


class Inline(unittest.TestCase):
    def problems(self, text):
        return find_problems("page.md", text, FakeProgram(), ROOT)

    def test_what_is_there_is_no_problem(self):
        self.assertEqual(self.problems("`lockstep train --epochs 3 -- --any`, `lockstep bench step --batch 4`, `--no-such`, "
                                       "`scripts/test.sh --slow`, `docs/*.md`, `tutorials/NN_name.cpp`, `lockstep`"), [])

    def test_a_subcommand_or_a_flag_that_is_not_there_is_named_with_its_line(self):
        self.assertEqual(self.problems("x\n`lockstep trian` and `lockstep train --epoch=3`"), [
            "page.md:2: `lockstep trian`: lockstep has no subcommand 'trian'",
            "page.md:2: `lockstep train --epoch=3`: lockstep train has no flag --epoch",
        ])

    def test_a_file_that_is_not_there_is_named(self):
        self.assertEqual(self.problems("`engine/no_such.h`"), ["page.md:1: `engine/no_such.h`: there is no engine/no_such.h"])

    def test_blocks_are_left_to_those_who_run_them(self):
        self.assertEqual(self.problems("```\n`lockstep trian`\n```\n"), [])


if __name__ == "__main__":
    unittest.main()
