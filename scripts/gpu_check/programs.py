"""Where the programs are, and which tests run on a GPU: in an unpacked pack, or in a build folder."""

import json
import os
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACK_FILE = "pack.json"


def source_tree():
    """The project's root, or None in an unpacked pack."""
    root = HERE.parent.parent
    return root if (root / "CMakePresets.json").exists() else None


def output(*command, **options):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True, **options).stdout


def commit_of(tree):
    """The commit of a source tree; "-dirty" behind it where files differ from it; "unknown" without git."""
    describe = ["describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return output("git", "-c", f"safe.directory={tree}", "-C", tree, *describe).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def cuda_major(build):
    """The major version of the CUDA toolkit that a build used; 0 where its cache does not say."""
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        if line.startswith("LOCKSTEP_CUDA_VERSION:"):
            return int(line.split("=")[1].split(".")[0] or 0)
    return 0


def names_of(program, pattern, environment):
    """The tests that a --gtest_filter names: what the program lists where it is a pattern."""
    if not set(pattern) & set("*?:"):
        return [pattern]
    words = ["--gtest_list_tests", "--gtest_filter=" + pattern]
    names, suite = [], ""
    for line in output(program, *words, env={**os.environ, **environment}).splitlines():
        word = line.split("#")[0].strip()
        if not line.startswith(" "):
            suite = word if word.endswith(".") else ""
        elif suite:
            names.append(suite + word)
    return names


def list_tests(build):
    """What CTest would run on one GPU, -L '^gpu$' -LE '^slow$': groups of one program and environment.

    {"tests": [{"program", "environment": {}, "tests": [NAME]}], "tutorials": [NAME]}
    Raises ValueError where a test's program was not built: it would be missed in silence.
    """
    listed = output("ctest", "--show-only=json-v1", "-L", "^gpu$", "-LE", "^slow$", cwd=build)
    groups, tutorials = {}, []
    for test in json.loads(listed)["tests"]:
        properties = {of["name"]: of["value"] for of in test["properties"]}
        command = test.get("command", [])
        if properties.get("DISABLED"):
            continue
        if not command:
            raise ValueError(f"the program of {test['name']} is not built, see LOCKSTEP_GPU_PROGRAMS")
        if test["name"].startswith("gpu.tutorials."):
            tutorials.append(test["name"].rsplit(".", 1)[1])
            continue
        filters = [word.split("=", 1)[1] for word in command if word.startswith("--gtest_filter=")]
        if len(filters) == 1:
            variables = tuple(properties.get("ENVIRONMENT", []))
            names = groups.setdefault((Path(command[0]).name, variables), [])
            names += names_of(command[0], filters[0], dict(word.split("=", 1) for word in variables))
    tests = [
        {"program": program, "environment": dict(word.split("=", 1) for word in variables), "tests": names}
        for (program, variables), names in sorted(groups.items())
    ]
    return {"tests": tests, "tutorials": sorted(tutorials)}


class Programs:
    """folder: of an unpacked pack or of a build. Raises ValueError where it is neither."""

    def __init__(self, folder):
        self.folder = Path(folder).resolve()
        self.bin = self.folder / "bin"
        tree = source_tree()
        self._lists = None
        if (self.folder / PACK_FILE).exists():
            of = json.loads((self.folder / PACK_FILE).read_text())
            self.commit, self.cuda, self._lists = of["commit"], of["cuda"], of["lists"]
            self.tutorials = self.torch = self.folder / "share"
            self.check_output = self.folder / "share" / "check_output.sh"
        elif (self.folder / "CMakeCache.txt").exists() and tree:
            self.commit, self.cuda = commit_of(tree), cuda_major(self.folder)
            self.tutorials, self.torch = tree / "tutorials", tree / "tests" / "bench"
            self.check_output = tree / "tests" / "tutorials" / "check_output.sh"
        else:
            raise ValueError(f"{folder} is neither an unpacked pack nor a build folder of this project")
        if not (self.bin / "lockstep").exists():
            raise ValueError(f"there is no program {self.bin / 'lockstep'}")

    def lists(self):
        if self._lists is None:
            self._lists = list_tests(self.folder)
        return self._lists
