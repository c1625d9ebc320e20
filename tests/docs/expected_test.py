"""Which output counts as what a page shows."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "check_docs"))

from expected import find_difference


class Expected(unittest.TestCase):
    def agrees(self, expected, printed, is_exact=True):
        self.assertIsNone(find_difference(expected, printed, is_exact))

    def differs(self, message, expected, printed, is_exact=True):
        self.assertEqual(find_difference(expected, printed, is_exact), message)

    def test_the_same_lines_agree_whatever_their_spaces(self):
        self.agrees(["a  b", "", "c"], ["a b", " c ", ""])

    def test_a_line_that_is_missing_other_or_too_much_is_named(self):
        self.differs("expected 'b', found no more lines", ["a", "b"], ["a"])
        self.differs("expected 'b', found 'c'", ["a", "b"], ["a", "c"])
        self.differs("expected no more lines, found 'b'", ["a"], ["a", "b"])
        self.differs("expected 'a', found no more lines", ["a"], [])

    def test_three_dots_stand_for_any_text_and_alone_for_any_lines(self):
        self.agrees(["epoch ... loss 1"], ["epoch 7 took 3 s, loss 1"])
        self.agrees(["a", "...", "b"], ["a", "x", "b", "y", "b"])
        self.agrees(["...", "b", "c", "..."], ["b", "x", "b", "c", "d"])
        self.agrees(["..."], [])
        self.differs("expected 'b', found 'x'", ["a", "...", "b"], ["a", "b", "x"])
        self.differs("expected 'c', found 'd'", ["...", "b", "c", "..."], ["b", "d"])

    def test_the_mark_of_a_disturbed_row_is_not_compared(self):
        self.agrees(["ddp 2 ...", "dp 4 N"], ["ddp*    2 13 ms", "dp?   4 7"])
        self.differs("expected 'ddp 2', found 'ddp x 2'", ["ddp 2"], ["ddp x 2"])

    def test_n_is_a_number_and_nothing_else(self):
        self.agrees(["N steps, N %"], ["24 steps, 1.5e-08 %"])
        self.differs("expected 'N steps', found 'some steps'", ["N steps"], ["some steps"])
        self.differs("expected 'N', found '3 4'", ["N"], ["3 4"])

    def test_other_numbers_count_in_a_console_block_alone(self):
        self.differs("expected '297 digits', found '296 digits'", ["297 digits"], ["296 digits"])
        self.agrees(["loss 1.67, 88.6 ms, 4 MiB"], ["loss 0.3, 1.2 s, 512 KiB"], is_exact=False)
        self.differs("expected 'loss N', found 'gain N'", ["loss 1"], ["gain 1"], is_exact=False)


if __name__ == "__main__":
    unittest.main()
