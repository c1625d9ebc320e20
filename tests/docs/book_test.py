"""scripts/check_book.py finds what a reader without a network would miss, and the book has the course in its order."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class CheckBook(unittest.TestCase):
    def check(self, body, style=""):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "index.html").write_text(f"<h1 id='a'>A</h1>{body}")
            (Path(folder) / "book.css").write_text(style)
            command = [sys.executable, "-B", ROOT / "scripts" / "check_book.py", folder]
            result = subprocess.run(command, stdout=subprocess.PIPE, text=True)
            return result.returncode, result.stdout

    def test_a_page_that_stands_alone_is_right(self):
        code, text = self.check("<a href='#a'>a</a> <a href='https://example.org'>far</a> <link rel='stylesheet' href='book.css'>")
        self.assertEqual((code, text), (0, "1 pages, the largest of 0 kB, 0 wrong\n"))

    def test_each_breach_is_named(self):
        for body, words in (("<script src='https://example.org/x.js'></script>", "takes https://example.org/x.js from the network"),
                            ("<link rel='stylesheet' href='//example.org/x.css'>", "takes //example.org/x.css from the network"),
                            ("<img src='lost.svg'>", "links to lost.svg, which is not in the book"),
                            ("<a href='#b'>b</a>", "links to #b, but that page has no such heading"),
                            ("x" * 400_000, "above 400000")):  # fmt: skip
            code, text = self.check(body)
            self.assertEqual(code, 1, body)
            self.assertIn(f"index.html: {words}" if words[0] != "a" else words, text)

    def test_fonts_of_a_style_are_checked(self):
        self.assertIn("takes https://example.org/f.woff2 from the network", self.check("", "src: url(https://example.org/f.woff2)")[1])

    def test_a_book_that_is_not_built_is_skipped(self):
        self.assertEqual(subprocess.run([ROOT / "scripts" / "check_book.py", "/nowhere"], stdout=subprocess.DEVNULL).returncode, 77)


class Order(unittest.TestCase):
    """The navigation in mkdocs.yml is the order of the course."""

    def setUp(self):
        course = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1].split("- book/questions.md")[0]
        self.chapters = [name for name in re.findall(r"book/(\w+)\.md", course) if name != "introduction"]

    def test_a_program_has_its_number(self):
        for program in ROOT.glob("tutorials/[0-9][0-9]_*.cpp"):
            number, name = int(program.stem[:2]), program.stem[3:]
            self.assertEqual(self.chapters[number:number + 1], [name], f"mkdocs.yml has chapter {number} otherwise")

    def test_every_page_has_a_place(self):
        places = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]))
        pages = [path for folder in ("docs", "docs/book") for path in (ROOT / folder).glob("*.md")]
        self.assertEqual(places, {str(path.relative_to(ROOT / "docs")) for path in pages})

    def test_the_introduction_lists_the_chapters(self):
        rows = re.findall(r"^\|[^|]*\| (\d\d) \[.*\]\((\w+)\.md\)", (ROOT / "docs" / "book" / "introduction.md").read_text(), re.M)
        self.assertEqual(rows, [(f"{number:02}", name) for number, name in enumerate(self.chapters)])


if __name__ == "__main__":
    unittest.main()
