"""Where the programs are, and which tests run on a GPU: in an unpacked pack, or in a build folder."""

import json
import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACK_FILE = "pack.json"


def source_tree():
    """The project's root, or None in an unpacked pack."""
    root = HERE.parent.parent
    return root if (root / "CMakePresets.json").exists() else None


def commit_of(tree):
    """The commit of a source tree; "-dirty" behind it where files differ from it; "unknown" without git."""
    try:
        return subprocess.run(
            [
                "git",
                "-c",
                f"safe.directory={tree}",
                "-C",
                tree,
                "describe",
                "--always",
                "--dirty",
                "--abbrev=12",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        recorded = tree / "commit.txt"  # of a pack of sources
        return recorded.read_text().strip() if recorded.exists() else "unknown"


def names_of(program, pattern, environment):
    """The tests that a --gtest_filter names: what the program lists where it is a pattern."""
    if not set(pattern) & set("*?:"):
        return [pattern]
    command = [program, "--gtest_list_tests", "--gtest_filter=" + pattern]
    listed = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=True)
    names, suite = [], ""
    for line in listed.stdout.splitlines():
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
    listed = subprocess.run(
        ["ctest", "--show-only=json-v1", "-L", "^gpu$", "-LE", "^slow$"],
        cwd=build,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
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
        if len(filters) != 1:
            continue
        variables = tuple(properties.get("ENVIRONMENT", []))
        environment = dict(word.split("=", 1) for word in variables)
        names = groups.setdefault((Path(command[0]).name, variables), [])
        names += names_of(command[0], filters[0], environment)
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
        if (self.folder / PACK_FILE).exists():
            self.pack = json.loads((self.folder / PACK_FILE).read_text())
            self.commit = self.pack["commit"]
            self._lists = self.pack["lists"]
            self.tutorial_sources = self.torch = self.folder / "share"
        elif (self.folder / "CMakeCache.txt").exists() and tree:
            self.pack = None
            self.commit = commit_of(tree)
            self._lists = None
            self.tutorial_sources = tree / "tutorials"
            self.torch = tree / "tests" / "bench"
        else:
            raise ValueError(f"{folder} is neither an unpacked pack nor a build folder of this project")
        if not (self.bin / "lockstep").exists():
            raise ValueError(f"there is no program {self.bin / 'lockstep'}")
        self.check_output = self.tutorial_sources / "check_output.sh"
        if not self.check_output.exists():
            self.check_output = self.tutorial_sources.parent / "tests" / "tutorials" / "check_output.sh"

    def lists(self):
        if self._lists is None:
            self._lists = list_tests(self.folder)
        return self._lists

    def groups(self, pattern="."):
        return [group for group in self.lists()["tests"] if re.match(pattern, group["program"])]
