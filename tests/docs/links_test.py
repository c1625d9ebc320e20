"""Links inside the project lead to files that are there, and to headings that they have; each statement of the texts has
a row."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["*.md", "docs/**/*.md", "tutorials/**/*.md", "tests/*/README.md"]


def without_code(text):
    return re.sub(r"^ *```.*?^ *```|`[^`\n]*`", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """As GitHub makes them of headings: lower case, without punctuation, dashes for spaces, -1 for the second."""
    found = set()
    for heading in re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        number = 1
        while slug in found:
            slug = f"{slug.removesuffix(f'-{number - 1}')}-{number}"
            number += 1
        found.add(slug)
    return found


class Links(unittest.TestCase):
    def test_each_leads_to_a_file_and_a_heading(self):
        pages = [page for pattern in PAGES for page in sorted(ROOT.glob(pattern))]
        self.assertGreater(len(pages), 10)
        lost = []
        for page in pages:
            for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
                if re.match(r"[a-z]+:", link):
                    continue
                path, _, anchor = link.partition("#")
                target = page.parent / path if path else page
                if not target.exists():
                    lost.append(f"{page.relative_to(ROOT)}: there is no {path}")
                elif anchor and anchor not in anchors(target.read_text()):
                    lost.append(f"{page.relative_to(ROOT)}: {path or 'the page'} has no heading #{anchor}")
        self.assertEqual(lost, [])

    def test_headings_are_named_as_github_names_them(self):
        text = "# `a.b(\"c\")`: d, e-f\n## [x](y) z\n## x z\n```\n# no\n```\n### 1.10 `f(\"g\", h)`\n"
        self.assertEqual(anchors(text), {"abc-d-e-f", "x-z", "x-z-1", "110-fg-h"})


class Texts(unittest.TestCase):
    def test_each_statement_has_a_verdict_and_a_command_or_a_row_that_has_one(self):
        chapters = re.split(r"^## Text ", (ROOT / "docs" / "from-the-texts.md").read_text(), flags=re.MULTILINE)[1:]
        self.assertEqual(len(chapters), 4)
        for chapter in chapters:
            rows = re.split(r"^### ", chapter, flags=re.MULTILINE)
            for number, row in enumerate(rows[1:], 1):
                self.assertTrue(row.startswith(f"{chapter[0]}.{number} "), row)
                self.assertRegex(row, r'\*\*|The text ends|The text leaves it out|"Writing Distributed')
                self.assertRegex(row, re.compile(r"^\$ |\]\(#", re.MULTILINE))


if __name__ == "__main__":
    unittest.main()
