"""The libraries that a pack carries."""

import shutil
import subprocess

from fakes import FolderTest

import pack


class Packs(FolderTest):
    def test_a_library_that_no_system_has_is_carried_and_its_lack_is_an_error(self):
        compiler = shutil.which("c++") or shutil.which("g++")
        if not compiler:
            self.skipTest("no compiler here")
        (self.folder / "part.cpp").write_text("int part() { return 0; }\n")
        (self.folder / "main.cpp").write_text("int part();\nint main() { return part(); }\n")
        for words in ("-shared -fPIC part.cpp -o libpart.so", "main.cpp -o main -L. -lpart -Wl,-rpath,$ORIGIN"):
            subprocess.run([compiler, *words.split()], cwd=self.folder, check=True)
        main = self.folder / "main"
        self.assertEqual([path.name for path in pack.libraries([main])], ["libpart.so"])
        (self.folder / "libpart.so").unlink()
        with self.assertRaisesRegex(pack.Problem, "main needs libpart.so, which is not found here"):
            pack.libraries([main])
