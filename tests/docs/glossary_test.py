"""docs/glossary.md: each word is defined where it says; README.zh.md: the commands are README.md's."""

import re
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from check_docs import read_blocks


def rows():
    """(term, the same in Chinese, meaning, the same in Chinese, places) of "| **a**<br>b | c<br>d | places |"."""
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines():
        if line.startswith("| **"):
            words, meanings, places = [cell.strip() for cell in line.strip("|").split(" | ")]
            yield (*words.split("<br>"), *meanings.split("<br>"), places)


class Glossary(unittest.TestCase):
    def test_each_word_has_both_languages_and_stands_in_the_files_that_its_row_names(self):
        found = list(rows())
        self.assertGreater(len(found), 50)
        for term, chinese, meaning, sense, places in found:
            self.assertRegex(chinese, "[\u4e00-\u9fff]", term)
            self.assertRegex(sense, "[\u4e00-\u9fff]", term)
            self.assertNotRegex(meaning, "[\u4e00-\u9fff]", term)
            links = re.findall(r"\]\(([^)#]+)", places)
            self.assertTrue(links, f"{term} is defined nowhere")
            words = re.sub(r"[-_ ]", "", term.strip("*").lower())
            for link in links:
                text = (ROOT / "docs" / link).read_text().lower()
                self.assertIn(words, re.sub(r"[-_ \n/]", "", text), f"{link} does not hold '{term}'")

    def test_no_word_stands_twice(self):
        terms = [cells[0] for cells in rows()]
        self.assertEqual(len(terms), len(set(terms)))


class ChinesePage(unittest.TestCase):
    def test_its_commands_are_those_of_the_english_page(self):
        def commands(name):
            blocks = read_blocks((ROOT / name).read_text())
            lines = [[re.sub(r"\s+#.*", "", line) for line in block.lines] for block in blocks if block.language == ""]
            return ["\n".join(block) for block in lines]

        found = commands("README.zh.md")
        self.assertGreaterEqual(len(found), 3)
        for block in found:
            self.assertIn(block, commands("README.md"))


if __name__ == "__main__":
    unittest.main()
