#!/usr/bin/env python3
"""Tests of expected.py: what a "~" lets pass, and what it doesn't."""

import unittest

import expected

TABLE = """\
── Step 1: compare ──
way                step    faster
one by one    ~1012 us     ~1.0x
in buckets     ~774 us     ~1.3x
check: buckets are faster ... ok
"""


class Figures(unittest.TestCase):
    def assert_passes(self, wanted, printed):
        self.assertEqual(expected.problems(wanted, printed), [])

    def assert_fails(self, wanted, printed, *words):
        problems = "\n".join(expected.problems(wanted, printed))
        for word in words:
            self.assertIn(word, problems)
        self.assertTrue(problems)

    def test_equal_texts_pass(self):
        self.assert_passes(TABLE, TABLE.replace("~", ""))

    def test_other_figures_in_the_same_order_pass(self):
        self.assert_passes(TABLE, TABLE.replace("~1012 us", "1.9 ms").replace("~774", "988").replace("~", ""))

    def test_a_word_must_be_there(self):
        self.assert_fails(TABLE, TABLE.replace("~", "").replace("one by one", "one after one"), "not printed: by")

    def test_a_number_without_a_mark_must_be_the_same(self):
        self.assert_fails("2 ranks send ~3.1 KB\n", "4 ranks send 3.1 KB\n", "not printed: 2")

    def test_words_may_not_change_places(self):
        self.assert_fails("a ring is faster than a tree\n", "a tree is faster than a ring\n", "another order")

    def test_lines_may_end_elsewhere(self):
        self.assert_passes("a ring takes\n  ~3.1 ms\n", "a ring\n  takes 3.2 ms\n")

    def test_ranks_may_print_in_any_order(self):
        self.assert_passes("[1] mine is ~1.5\n[0] mine is ~-0.5\n", "[0] mine is -0.6\n[1] mine is 1.4\n")

    def test_a_changed_order_in_a_column_fails(self):
        self.assert_fails(TABLE, TABLE.replace("~774", "1112").replace("~", ""), "order", "~1012"[1:], "774")

    def test_units_count_in_the_order(self):
        self.assert_passes(TABLE, TABLE.replace("~1012 us", "1.01 ms").replace("~", ""))
        self.assert_fails(TABLE, TABLE.replace("~774 us", "1.12 ms").replace("~", ""), "order")

    def test_figures_within_a_quarter_may_change_order(self):
        wanted = "one   ~22.4 ms\ntwo   ~21.8 ms\n"
        self.assert_passes(wanted, "one   21.0 ms\ntwo   21.9 ms\n")

    def test_a_released_figure_may_change_order(self):
        wanted = "one   ~~0.18 ms\ntwo   ~0.13 ms\n"
        self.assert_passes(wanted, "one   0.12 ms\ntwo   0.13 ms\n")

    def test_prose_has_no_columns(self):
        self.assert_passes("it takes ~3.0 ms, and\nthen ~1.0 ms\n", "it takes 1.0 ms, and\nthen 3.0 ms\n")

    def test_a_changed_sign_fails_even_if_released(self):
        self.assert_fails("gradient ~-0.0658\n", "gradient 0.0658\n", "sign")
        self.assert_fails("gradient ~~+0.0658\n", "gradient -0.0658\n", "sign")
        self.assert_passes("gradient ~0.00\n", "gradient -0.01\n")

    def test_a_ratio_on_the_other_side_of_one_fails(self):
        self.assert_fails("~1.1x\n", "0.8x\n", "side of 1")
        self.assert_fails("it is ~1.1 times as fast\n", "it is 0.8 times as fast\n", "side of 1")
        self.assert_passes("~1.1x\n", "1.0x\n")
        self.assert_passes("~~1.1x\n", "0.9x\n")

    def test_nothing_of_time_is_judged_where_others_took_the_cores(self):
        printed = TABLE.replace("~774", "1112").replace("~", "").replace("... ok", "... not judged: others took the cores")
        self.assert_passes(TABLE, printed)


class Marks(unittest.TestCase):
    def test_a_new_table_is_strict(self):
        self.assertEqual(expected.marked(["one   2.5 ms\ntwo   12 us\n"] * 3), "one   ~2.5 ms\ntwo   ~12 us\n")

    def test_what_differs_between_runs_may_vary(self):
        self.assertEqual(expected.marked(["port 41111 of 4\n", "port 41112 of 4\n"]), "port ~41111 of 4\n")

    def test_rounding_errors_are_released(self):
        self.assertEqual(expected.marked(["differs by 3e-08\n"]), "differs by ~~3e-08\n")

    def test_a_release_outlives_a_rewrite(self):
        old = "one   ~~0.18 ms\ntwo   ~0.13 ms\n"
        self.assertEqual(expected.marked(["one   0.12 ms\ntwo   0.14 ms\n"], old),
                         "one   ~~0.12 ms\ntwo   ~0.14 ms\n")


unittest.main()
