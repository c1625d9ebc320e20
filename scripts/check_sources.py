#!/usr/bin/env python3
"""Checks that every source compiles by itself.

  scripts/check_sources.py BUILD_FOLDER...

Quick builds unite sources, and so hide a missing #include. This compiles each source alone, as syntax, with the
options that CMake wrote into the compile_commands.json of the folders; of a source that several folders compile, the
first folder's. The folders need only be configured (with -DLOCKSTEP_QUICK=OFF), not built. Generated sources are left
out: their originals are checked.

Headers of the standard library and of others, which cost more than a source does, are compiled once. So this finds
the project's own headers that a source forgot, and only now and then another one; `scripts/nightly.sh tidy` reads
every source without them.
"""
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

COMMON = ["algorithm", "chrono", "filesystem", "functional", "map", "memory", "optional", "string", "thread", "vector",
          "fmt/format.h", "nlohmann/json.hpp"]
OWN = ["lockstep.h", "gmock/gmock.h", "gtest/gtest.h"]  # only for sources that include them themselves
FEWEST = 4  # sources for which it is worth while

Source = collections.namedtuple("Source", "path folder options")


def read_sources(build_folders):
    """The sources of the project, each once."""
    sources = {}
    for build in build_folders:
        for entry in json.loads((build / "compile_commands.json").read_text()):
            path = pathlib.Path(entry["directory"], entry["file"]).resolve()
            if path in sources or any(path.is_relative_to(folder.resolve()) for folder in build_folders):
                continue
            words = shlex.split(entry["command"])
            # Without optimisation, a launcher (ccache), and what names the input and the output.
            compiler = next(i for i, word in enumerate(words) if re.search(r"(\+\+|cc)(-[\d.]+)?$", word)
                            and "ccache" not in word)
            output = words.index("-o")
            words = words[compiler:output] + words[output + 2:]
            options = tuple(word for word in words
                            if word not in ("-c", entry["file"]) and not re.match(r"-O|-g|-fPI|-f.*-sections", word))
            sources[path] = Source(path, entry["directory"], options)
    return list(sources.values())


def headers_of(source):
    """Those to compile first."""
    included = re.findall(r"^#include <(.*)>", source.path.read_text(), re.MULTILINE)
    return (*COMMON, *(header for header in OWN if header in included))


def group_of(source):
    """Sources share headers if their options are the same but for folders, warnings and a target's own macros."""
    return headers_of(source), tuple(word for word in source.options if not re.match("-D|-I|-W", word))


def compile_headers(path, sources):
    """Returns the options to use them: none if few would, or if they can't be compiled."""
    if len(sources) < FEWEST:
        return ()
    source = sources[0]
    path.write_text("".join(f"#include <{header}>\n" for header in headers_of(source)))
    done = subprocess.run([*source.options, "-x", "c++-header", str(path), "-o", f"{path}.gch"], cwd=source.folder,
                          capture_output=True)
    return ("-include", str(path)) if done.returncode == 0 else ()


def check(source, more_options):
    done = subprocess.run([*source.options, *more_options, "-fsyntax-only", str(source.path)], cwd=source.folder,
                          capture_output=True, text=True)
    return done.returncode, done.stderr


def main():
    build_folders = [pathlib.Path(word) for word in sys.argv[1:]]
    if not build_folders or "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__.strip())
        return 0 if build_folders else 2
    sources = read_sources(build_folders)
    groups = collections.defaultdict(list)
    for source in sources:
        groups[group_of(source)].append(source)
    wrong = 0
    with tempfile.TemporaryDirectory() as work, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        paths = [pathlib.Path(work, f"{number}.h") for number in range(len(groups))]
        options = pool.map(compile_headers, paths, groups.values())
        jobs = [pool.submit(check, source, more)
                for more, members in zip(list(options), groups.values()) for source in members]
        for job in jobs:
            status, messages = job.result()
            wrong += status != 0
            sys.stderr.write(messages)
    print(f"{len(sources) - wrong} of {len(sources)} sources compile by themselves")
    return 1 if wrong or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
