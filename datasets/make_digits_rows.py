#!/usr/bin/env python3
"""Writes digits_rows.txt from scikit-learn's copy of the UCI digits.

Run: datasets/make_digits_rows.py [digits.csv.gz] > datasets/digits_rows.txt
The default is the file of Debian's package python3-sklearn. The format is in digits_rows.h.
"""
import csv
import gzip
import sys

SOURCE = "/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz"
DIGITS = "0123456789abcdefg"


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else SOURCE
    with gzip.open(path, "rt") as stream:
        rows = [[int(value) for value in row] for row in csv.reader(stream)]
    assert len(rows) == 1797 and all(len(row) == 65 for row in rows)
    for *pixels, label in rows:
        print(f"{label}{''.join(DIGITS[pixel] for pixel in pixels)}")


main()
