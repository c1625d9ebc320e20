#!/usr/bin/env python3
"""Writes letter_ranges.cpp from what the package `regex` takes for letters and numbers.

Run: datasets/make_letter_ranges.py > datasets/letter_ranges.cpp
"""
import regex

HEAD = """\
// Made by make_letter_ranges.py from the data of Unicode 17.
// Format: letter_ranges.h.
#include "datasets/letter_ranges.h"

namespace lockstep::datasets {

// clang-format off
"""
TAIL = """\
// clang-format on

}  // namespace lockstep::datasets
"""


def distances(pattern):
    """The points where membership changes, each as its distance from the one before."""
    is_member = regex.compile(pattern).match
    was_inside, last, found = False, 0, []
    for point in range(0x110000):
        inside = not 0xd800 <= point < 0xe000 and bool(is_member(chr(point)))
        if inside != was_inside:
            found.append(point - last)
            was_inside, last = inside, point
    return found


print(HEAD, end="")
for name, pattern in (("Letter", r"\p{L}"), ("Number", r"\p{N}")):
    numbers = distances(pattern)
    print(f"const std::array<std::uint32_t, kNum{name}Ranges> k{name}Ranges = {{")
    lines = [""]
    for number in numbers:
        if len(lines[-1]) > 94:
            lines.append("")
        lines[-1] += f"{number},"
    print("\n".join(lines) + "\n};")
print(TAIL, end="")
