"""What a pack carries, and what every system has."""

import shutil
import subprocess
import sys
from pathlib import Path

from fakes import FolderTest

import pack
import programs


class Packs(FolderTest):
    def compiler(self):
        found = shutil.which("c++") or shutil.which("g++")
        if not found or not shutil.which("readelf"):
            self.skipTest("no compiler here")
        return found

    def make_pack(self):
        """bin/main, which needs lib/libpart.so."""
        compiler = self.compiler()
        (self.folder / "bin").mkdir()
        (self.folder / "lib").mkdir()
        (self.folder / "part.cpp").write_text("int part() { return 0; }\n")
        (self.folder / "main.cpp").write_text("int part();\nint main() { return part(); }\n")
        for command in (
            "-shared -fPIC part.cpp -o lib/libpart.so",
            "main.cpp -o bin/main -Llib -lpart -Wl,-rpath,$ORIGIN/../lib",
        ):
            subprocess.run([compiler, *command.split()], cwd=self.folder, check=True)

    def test_a_library_that_no_system_has_is_carried_and_its_lack_is_an_error(self):
        self.make_pack()
        main = self.folder / "bin" / "main"
        self.assertEqual(list(pack._libraries([main])), ["libpart.so"])
        (self.folder / "lib" / "libpart.so").unlink()
        with self.assertRaisesRegex(pack.BuildFailed, "main needs libpart.so, which is not found here"):
            pack._libraries([main])

    def test_the_glibc_that_programs_need_is_known(self):
        self.compiler()
        self.assertGreaterEqual(pack._newest_glibc([Path(sys.executable)]), (2, 2))

    def test_a_pack_that_is_too_large_is_an_error(self):
        (self.folder / "in").mkdir()
        (self.folder / "in" / "file").write_bytes(bytes(1000))
        before = pack.MAX_BYTES
        self.addCleanup(setattr, pack, "MAX_BYTES", before)
        pack._write(self.folder / "in", self.folder / "small.tar.gz")
        pack.MAX_BYTES = 10
        with self.assertRaisesRegex(pack.BuildFailed, "larger than"):
            pack._write(self.folder / "in", self.folder / "large.tar.gz")

    def list_of(self, text):
        ctest = self.program(self.folder / "tools" / "ctest", f"print(r'''{text}''')")
        before = programs.subprocess.run
        self.addCleanup(setattr, programs.subprocess, "run", before)
        programs.subprocess.run = lambda command, **options: before([ctest, *command[1:]], **options)
        return programs.list_tests(self.folder)

    def test_a_test_whose_program_is_not_built_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "the program of gpu.Flag.A is not built"):
            self.list_of('{"tests": [{"name": "gpu.Flag.A", "properties": []}]}')

    def test_the_tests_of_a_build_are_grouped_by_program_and_environment(self):
        self.assertEqual(
            self.list_of(LISTED),
            {
                "tests": [
                    {
                        "program": "nn_tests",
                        "environment": {"LOCKSTEP_TEST_DEVICE": "cuda"},
                        "tests": ["A.B", "A.C"],
                    }
                ],
                "tutorials": ["01_list_devices"],
            },
        )


LISTED = """{"tests": [
  {"name": "gpu.nn.A.B", "command": ["/b/bin/nn_tests", "--gtest_filter=A.B"],
   "properties": [{"name": "ENVIRONMENT", "value": ["LOCKSTEP_TEST_DEVICE=cuda"]}]},
  {"name": "gpu.nn.A.C", "command": ["/b/bin/nn_tests", "--gtest_filter=A.C"],
   "properties": [{"name": "ENVIRONMENT", "value": ["LOCKSTEP_TEST_DEVICE=cuda"]}]},
  {"name": "gpu.nn.A.Off", "command": ["/b/bin/nn_tests", "--gtest_filter=A.Off"],
   "properties": [{"name": "DISABLED", "value": true}]},
  {"name": "gpu.tutorials.01_list_devices", "command": ["/t/check_output.sh", "/b/bin/01_list_devices"],
   "properties": []}]}"""
