"""What of a page is a command, what is output, and what its comments say."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts" / "check_docs"))

from page import PageError, read_commands


def read(text):
    return read_commands("page.md", text, lambda word: word in {"lockstep", "export"} or "/" in word)


class Pages(unittest.TestCase):
    def test_a_console_block_holds_commands_and_all_that_they_print(self):
        commands = read("x\n```console\n$ lockstep a\none\ntwo\n$ lockstep b \\\n> --c\n```\n")
        self.assertEqual([(c.line, c.text, c.expected) for c in commands],
                         [(3, "lockstep a", ["one", "two"]), (6, "lockstep b \\\n--c", None)])
        self.assertTrue(commands[0].is_exact)

    def test_a_plain_block_holds_a_command_a_line_and_the_next_one_its_output(self):
        commands = read("```\nlockstep a   # why\nA=1 scripts/b.sh \\\n  --c\n```\n\n```\nepoch 1\n```\n")
        self.assertEqual([(c.line, c.text, c.expected) for c in commands],
                         [(2, "lockstep a   # why", None), (3, "A=1 scripts/b.sh --c", ["epoch 1"])])
        self.assertFalse(commands[1].is_exact)

    def test_other_languages_hold_no_commands(self):
        self.assertEqual(read("```text\nlockstep a\n```\n```cpp\nint main();\n```\n"), [])

    def test_a_block_that_is_neither_is_an_error_that_says_what_to_write(self):
        with self.assertRaisesRegex(PageError, "page.md:1: this block is neither .* ```text"):
            read("```\na diagram\n```\n")
        with self.assertRaisesRegex(PageError, "page.md:6: this block is neither"):
            read("```\nlockstep a\n```\nprose\n\n```\nepoch 1\n```\n")

    def test_comments_just_before_a_block_speak_of_it(self):
        block = read('<!-- not run "lockstep a": needs\n a GPU -->\n<!-- first: mkdir x -->\n\n```\nlockstep a\n```\n')[0].block
        self.assertEqual([(d.kind, d.words, d.text) for d in block.directives],
                         [("not run", "lockstep a", "needs a GPU"), ("first", "", "mkdir x")])
        with self.assertRaisesRegex(PageError, "text between"):
            read("<!-- not run: why -->\nprose\n```\nlockstep a\n```\n")
        with self.assertRaisesRegex(PageError, "no such comment"):
            read("<!-- not run because -->\n```\nlockstep a\n```\n")

    def test_a_marked_block_may_hold_anything(self):
        self.assertEqual(len(read("<!-- not run: no cluster -->\n```\nsome queue\n```\n")), 1)

    def test_a_block_without_an_end_is_an_error(self):
        with self.assertRaisesRegex(PageError, "page.md:2: this block does not end"):
            read("x\n```\nlockstep a\n")


if __name__ == "__main__":
    unittest.main()
