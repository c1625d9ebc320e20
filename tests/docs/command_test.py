"""scripts/check_docs.sh as a whole, on pages that are right and wrong."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Command(unittest.TestCase):
    """A small project with the script, one program and one page."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "check_docs.sh", self.folder / "scripts")
        shutil.copytree(ROOT / "scripts" / "check_docs", self.folder / "scripts" / "check_docs")
        program = self.folder / "out" / "bin" / "lockstep"
        program.parent.mkdir(parents=True)
        program.write_text('#!/bin/sh\n[ "$1" = fail ] && { echo broken; exit 3; }\necho "said $*"\ntouch made\n')
        program.chmod(0o755)

    def check(self, page, *arguments):
        (self.folder / "README.md").write_text(page)
        command = [self.folder / "scripts" / "check_docs.sh", "--build", self.folder / "out", *arguments]
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LOCKSTEP_TOKEN": "x"})

    def test_a_page_that_is_right_passes_and_leaves_nothing_behind(self):
        done = self.check("```console\n$ lockstep a\nsaid a\n$ export X=7\n$ lockstep $X${LOCKSTEP_TOKEN-}\nsaid 7\n```\n"
                          "```console\n$ lockstep $X; ls made\nsaid 7\nmade\n```\n")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        self.assertIn("4 commands run, 0 not run, 0 failed", done.stdout)
        self.assertFalse((self.folder / "made").exists())

    def test_each_block_begins_in_the_folder(self):
        done = self.check("```console\n$ mkdir a && cd a\n$ ls ..\n...\na\n...\n```\n```console\n$ ls -d a\na\n```\n")
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_other_output_fails_and_is_shown(self):
        done = self.check("```console\n$ lockstep a\nsaid b\n```\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("expected 'said b', found 'said a'", done.stdout)

    def test_a_command_that_fails_fails_the_page_also_without_output_to_compare(self):
        done = self.check("```\nlockstep fail\n```\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("README.md:2: lockstep fail: exit code 3", done.stdout)

    def test_what_is_not_run_is_listed_with_its_reason(self):
        done = self.check('<!-- not run "lockstep fail": no GPU -->\n```\nlockstep fail x\nlockstep b\n```\n'
                          "```\nwsl c\n```\n")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("README.md:3  lockstep fail x: no GPU", done.stdout)
        self.assertIn("README.md:7  wsl c: wsl is not installed", done.stdout)
        self.assertIn("1 commands run, 2 not run, 0 failed", done.stdout)

    def test_another_command_may_stand_in_and_dots_may_not_be_run(self):
        self.assertEqual(self.check("```\nlockstep a   # ... and so on\n```\n").returncode, 0)
        page = "```\nlockstep train ...\n```\n"
        self.assertIn("'...' stands in the command", self.check(page).stdout)
        done = self.check('<!-- instead of "lockstep train": lockstep train --fast -->\n' + page)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_a_comment_that_speaks_of_no_command_fails(self):
        done = self.check('<!-- not run "lockstep x": why -->\n```\nlockstep a\n```\n')
        self.assertEqual(done.returncode, 1)
        self.assertIn('speaks of "lockstep x", which no command begins with', done.stdout)

    def test_what_a_page_takes_to_be_there_is_made_first(self):
        self.assertEqual(self.check("```\ncat there.txt\n```\n").returncode, 1)
        self.assertEqual(self.check("<!-- first: touch there.txt -->\n```\ncat there.txt\n```\n").returncode, 0)

    def test_wrong_use_is_one_line_and_exit_code_2(self):
        for arguments in (["--no-such"], ["missing.md"]):
            done = self.check("", *arguments)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1))


if __name__ == "__main__":
    unittest.main()
