#!/usr/bin/env python3
"""Checks the built book, as a reader meets it who has only its files.

  scripts/check_book.py [FOLDER]     default: build/book; exits 77 where it is not built

Each page has at most 400 kB, takes no script, style, picture or font from the network, and its links lead to pages of the
book. Prints a line for each breach, and exits 1 if there is one."""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

MOST_BYTES = 400_000
ROOT = Path(__file__).resolve().parents[1]


class Links(HTMLParser):
    """The links of a page, and what a browser loads to show it."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.names = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.names |= {values.get("id"), values.get("name")}
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        elif tag == "link" and values.get("rel") not in ("canonical", "alternate"):
            self.loaded.append(values.get("href", ""))
        elif values.get("src"):
            self.loaded.append(values["src"])


def problems_of(page, pages):
    """What is wrong with a page; pages holds the links and names of each."""
    if page.stat().st_size > MOST_BYTES:
        yield f"{page.stat().st_size} bytes, above {MOST_BYTES}: shorten or split it"
    for link in pages[page].loaded:
        if re.match(r"(https?:)?//", link):
            yield f"takes {link} from the network"
    for link in pages[page].links + pages[page].loaded:
        path, _, anchor = unquote(link).partition("#")
        if re.match(r"[a-z]+:|/", link):
            continue
        target = (page.parent / path).resolve() if path else page
        target = target / "index.html" if target.is_dir() else target
        if not target.is_file():
            yield f"links to {link}, which is not in the book"
        elif anchor and target in pages and not anchor.startswith("__") and anchor not in pages[target].names:
            yield f"links to {link}, but that page has no such heading"


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "book").resolve()
    if not (folder / "index.html").is_file():
        print(f"there is no {folder}/index.html: scripts/book.sh builds it")
        sys.exit(77)
    paths = [path for path in sorted(folder.rglob("*.html")) if path.name != "404.html"]
    pages = {path: Links(path.read_text()) for path in paths}
    breaches = [f"{page.relative_to(folder)}: {problem}" for page in pages for problem in problems_of(page, pages)]
    for style in folder.rglob("*.css"):
        for url in re.findall(r"url\([\"']?(https?:[^)]+)", style.read_text()):
            breaches.append(f"{style.relative_to(folder)}: takes {url} from the network")
    print(*breaches, sep="\n", end="\n" if breaches else "")
    print(f"{len(pages)} pages, the largest of {max(page.stat().st_size for page in pages) / 1000:.0f} kB, {len(breaches)} wrong")
    sys.exit(bool(breaches))


if __name__ == "__main__":
    main()
