#!/usr/bin/env python3
"""Draws the pictures of the book, docs/book/pictures/NAME.svg, from plans and from the programs' expected outputs.

  scripts/pictures.py                   compares the pictures with what would be drawn, and names those that differ
  scripts/pictures.py --write [NAME..]  draws them (default: all)

Plans are those that `lockstep plan` prints; --program PATH says where lockstep is (default: build/release/bin).
"""

import argparse
import importlib
import pathlib
import sys
import xml.etree.ElementTree

from pictures import kit, sources

THEMES = sorted(
    path.stem
    for path in pathlib.Path(kit.__file__).parent.glob("*.py")
    if path.stem not in ("__init__", "kit", "sources")
)
LARGEST = 25_000  # bytes of a picture


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--program", default=sources.program, type=pathlib.Path)
    parser.add_argument("--folder", default=sources.ROOT / "docs/book/pictures", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    flags = parser.parse_args()
    if not flags.program.is_file():
        sys.exit(f"pictures: {flags.program} does not exist; build the target lockstep, or name it with --program")
    sources.program = flags.program.resolve()
    for theme in THEMES:
        importlib.import_module(f"pictures.{theme}")
    unknown = [name for name in flags.names if name not in kit.PICTURES]
    if unknown:
        sys.exit(f"pictures: unknown {unknown[0]!r}; use one of: {', '.join(sorted(kit.PICTURES))}")

    wrong = []
    for name in flags.names or sorted(kit.PICTURES):
        svg = kit.PICTURES[name]().svg()
        xml.etree.ElementTree.fromstring(svg)
        if len(svg.encode()) > LARGEST:
            sys.exit(f"pictures: {name} has {len(svg.encode())} bytes, more than {LARGEST}")
        path = flags.folder / f"{name}.svg"
        if flags.write:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(svg, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != svg:
            wrong.append(path.name)
    if not flags.names:
        wrong += [
            f"{path.name} (nothing draws it)" for path in flags.folder.glob("*.svg") if path.stem not in kit.PICTURES
        ]
    if wrong and not flags.write:
        sys.exit(f"pictures: these are not what scripts/pictures.py --write draws: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
