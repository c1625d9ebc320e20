#!/usr/bin/env python3
"""Writes digits_rows.cpp from scikit-learn's copy of the UCI digits.

Run: datasets/make_digits_rows.py [digits.csv.gz] > datasets/digits_rows.cpp
The default is the file of Debian's package python3-sklearn. The format is in digits_rows.h.
"""
import csv
import gzip
import sys

SOURCE = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
DIGITS = "0123456789abcdefg"

HEAD = """\
// Made by make_digits_rows.py from "Optical Recognition of Handwritten Digits" by E. Alpaydin and
// C. Kaynak (UCI Machine Learning Repository, 1998, https://doi.org/10.24432/C50P49), CC BY 4.0.
// Format: digits_rows.h.
#include "datasets/digits_rows.h"

namespace lockstep::datasets {

// clang-format off
constinit const std::array<std::string_view, kNumDigits> kDigitRows = {
"""
TAIL = """\
};
// clang-format on

}  // namespace lockstep::datasets
"""


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else SOURCE
    with gzip.open(path, "rt") as stream:
        rows = [[int(value) for value in row] for row in csv.reader(stream)]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    sys.stdout.write(HEAD)
    for *pixels, label in rows:
        sys.stdout.write(f'"{label}{"".join(DIGITS[pixel] for pixel in pixels)}",\n')
    sys.stdout.write(TAIL)


main()
