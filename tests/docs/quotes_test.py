"""scripts/quotes.py: quotes of the pages are the lines of their sources, and one that has drifted is found and renewed."""

import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import quotes  # noqa: E402

PROGRAM = "int main() {\n  for (;;) {\n    print(\"a\");\n    // More.\n  }\n  print(\"b\");\n}\n"
OUTPUT = "Question: why?\n  step  ~0.5 ms   ~~-3e-08\nAnswer: ~2x.\n"
CODE = '<!-- code split_batch: "for (" to "}" -->\n```cpp\n%s```\n'
QUOTED = 'for (;;) {\n  print("a");\n  // More.\n}\n'


class Quotes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tutorials" / "expected").mkdir(parents=True)
        (self.root / "tutorials" / "07_split_batch.cpp").write_text(PROGRAM)
        (self.root / "tutorials" / "expected" / "07.txt").write_text(OUTPUT)

    def problem(self, page):
        problems = quotes.renew(self.root, page)[1]
        self.assertEqual(len(problems), 1, problems)
        return problems[0]

    def test_an_empty_block_is_filled_without_the_indent(self):
        self.assertEqual(quotes.renew(self.root, CODE % "")[0], CODE % QUOTED)

    def test_a_filled_block_is_right(self):
        page = f"# Title\n\n{CODE % QUOTED}\nText.\n"
        self.assertEqual(quotes.renew(self.root, page), (page, []))

    def test_one_changed_character_is_named_with_its_line(self):
        line, problem = self.problem("# Title\n\n" + CODE % QUOTED.replace("More", "Move"))
        self.assertEqual(line, 3)
        self.assertIn("differs from tutorials/07_split_batch.cpp: run scripts/quotes.py --write", problem)

    def test_outputs_lose_their_marks(self):
        page = '<!-- output split_batch: "step" to "Answer" -->\n```text\n```\n'
        self.assertIn("```text\n  step  0.5 ms   -3e-08\nAnswer: 2x.\n```\n", quotes.renew(self.root, page)[0])

    def test_without_a_last_line_it_is_one_line(self):
        page = '<!-- code tutorials/07_split_batch.cpp: "print("b"" -->\n```cpp\n```\n'
        self.assertIn('```cpp\nprint("b");\n```\n', quotes.renew(self.root, page)[0])

    def test_a_first_line_that_fits_none_or_several_is_said(self):
        self.assertIn('begins with "nothing"', self.problem(CODE.replace("for (", "nothing") % QUOTED)[1])
        self.assertIn("lines 3, 6", self.problem(CODE.replace("for (", "print(") % QUOTED)[1])

    def test_a_last_line_that_is_gone_is_said(self):
        self.assertIn('from line 2 on begins with "end"', self.problem(CODE.replace('"}"', '"end"') % QUOTED)[1])

    def test_a_program_that_is_gone_is_said(self):
        self.assertIn('no program of the course is named "cut_batch"', self.problem(CODE.replace("split", "cut") % QUOTED)[1])

    def test_a_comment_that_is_not_read_is_said(self):
        self.assertIn("write the comment as", self.problem("<!-- code split_batch -->\n```cpp\n```\n")[1])
        self.assertIn("needs a block", self.problem('<!-- code split_batch: "for" -->\n\n```cpp\n```\n')[1])

    def test_comments_inside_a_block_are_text(self):
        page = f"````\n{CODE % ''}````\n"
        self.assertEqual(quotes.renew(self.root, page), (page, []))

    def test_questions_are_listed_below_their_chapters_and_answers_are_not(self):
        (self.root / "mkdocs.yml").write_text("\nnav:\n  - book/split_batch.md\n  - book/lost.md\n")
        asked = "# Cut?\n<details><summary>Answers</summary>\n<details><summary>Who?</summary>\n"
        (self.root / "split_batch.md").write_text(asked)
        page = "# All\n\n<!-- questions -->\nold\n"
        listed = "# All\n\n<!-- questions -->\n\n**[07 Cut?](split_batch.md)**\n\n- Who?\n"
        self.assertEqual(quotes.renew_questions(self.root, self.root, page), listed)
        self.assertEqual(quotes.renew_questions(self.root, self.root, listed), listed)


if __name__ == "__main__":
    unittest.main()
