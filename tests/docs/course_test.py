"""docs/teaching.md: its plans add up, and the course has every program in order and every lab once, with its minutes."""

import re
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "teaching.md").read_text()
FIRST_CLASS = (ROOT / "docs" / "book" / "first_class.md").read_text()


def minutes_of_programs():
    course = (ROOT / "tutorials" / "course.cmake").read_text()
    return {int(number): int(minutes) for number, minutes in re.findall(r"\b(\d\d)_\w+:(\d+)", course)}


def minutes_of_labs():
    page = (ROOT / "tutorials" / "labs" / "README.md").read_text()
    return {int(number): int(minutes) for number, minutes in re.findall(r"^\| \[(\d\d)_.*\| (\d+) \|$", page, re.M)}


def numbers_in(cell):
    """[1, 2, 3, 5] of "01 to 03, 05"."""
    numbers = []
    for first, last in re.findall(r"\b(\d\d)(?: to (\d\d))?\b", cell):
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def rows_after(words, page=PAGE):
    """The cells of the first table after these words, without its head."""
    table = re.search(re.escape(words) + r".*?\n\n?(\|.*?)\n\n", page, re.DOTALL).group(1)
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


class Course(unittest.TestCase):
    def test_has_each_program_in_the_order_of_its_number_and_each_lab_once(self):
        rows = rows_after("**A course**")
        self.assertEqual([n for row in rows for n in numbers_in(row[2])], sorted(minutes_of_programs()))
        self.assertEqual(sorted(n for row in rows for n in numbers_in(row[3])), sorted(minutes_of_labs()))

    def test_minutes_are_those_of_the_tables(self):
        for row in rows_after("**A course**"):
            self.assertEqual(int(row[4]), sum(minutes_of_programs()[n] for n in numbers_in(row[2])), row)
            self.assertEqual(int(row[5]), sum(minutes_of_labs()[n] for n in numbers_in(row[3])), row)

    def test_hours_are_those_of_the_tables(self):
        hours = [sum(table.values()) / 60 for table in (minutes_of_programs(), minutes_of_labs())]
        self.assertIn("%.1f hours of programs and %.1f of labs" % tuple(hours), " ".join(PAGE.split()))

    def test_classes_are_as_long_as_their_headings_say(self):
        for words, page, minutes in (("# A first class of 90 minutes", FIRST_CLASS, 90), ("**A lab day of three hours**", PAGE, 180)):
            self.assertEqual(sum(int(row[0]) for row in rows_after(words, page)), minutes, words)

    def test_the_first_class_shows_the_commands_of_its_table_and_tells_of_all_its_minutes(self):
        rows = rows_after("# A first class", FIRST_CLASS)
        named = [command for row in rows for command in re.findall(r"`(\d\d_[^`]+)`", row[1])]
        block = re.search(r"```\n(.*?)```", FIRST_CLASS, re.DOTALL).group(1)
        self.assertEqual(block.splitlines(), named)
        ends = [sum(int(row[0]) for row in rows[:number + 1]) for number in range(len(rows))]
        parts = re.findall(r"^## (\d+) to (\d+):", FIRST_CLASS, re.M)
        self.assertEqual([(int(begin), int(end)) for begin, end in parts], list(zip([0, *ends], ends)))


if __name__ == "__main__":
    unittest.main()
