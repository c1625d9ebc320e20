"""What building Lockstep needs beside a compiler, CMake and the CUDA toolkit, copied from this Debian or Ubuntu.

The copy is a folder for CMAKE_PREFIX_PATH: headers, libraries and CMake's files of the packages that
scripts/setup.sh installs, under the names that they have below /usr.
"""

import re
import shutil
import subprocess
from pathlib import Path

PACKAGES = (
    "libeigen3-dev",
    "libgtest-dev",
    "libgmock-dev",
    "libcli11-dev",
    "nlohmann-json3-dev",
    "libfmt-dev",
    "libfmt9",
    "zlib1g-dev",
    "zlib1g",
    "libssl-dev",
    "libssl3",
)
# In Ubuntu 24.04 some have other names; a package that is not here is another's other name.
OTHER_NAMES = ("libssl3t64",)
WANTED = re.compile(
    r"include/|lib/[^/]+/(cmake/|[^/]+\.so[^/]*$|lib(gtest|gmock|z)[^/]*\.a$)|share/(cmake|eigen3/cmake)/"
)
UNWANTED = re.compile(r"include/eigen3/unsupported/")
NCCL_HEADER = ("/usr/include/nccl.h", "/usr/local/include/nccl.h", "/usr/local/cuda/include/nccl.h")


def _files(package):
    listed = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True)
    return listed.stdout.splitlines() if listed.returncode == 0 else []


def copy_dependencies(folder):
    """Raises OSError where a package is missing."""
    for package in PACKAGES + OTHER_NAMES:
        files = _files(package)
        if not files and package.endswith("-dev"):
            raise OSError(f"package {package} is not installed here; scripts/setup.sh installs it")
        for file in files:
            path = Path(file)
            name = re.sub(r"^/(usr/)?", "", file)
            if path.is_dir() or not path.exists() or not WANTED.match(name) or UNWANTED.match(name):
                continue
            # Headers of one architecture lie beside the others: the compiler there looks in one folder.
            target = folder / re.sub(r"^include/[^/]+-linux-gnu/", "include/", name)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    for header in NCCL_HEADER:
        if Path(header).exists():
            shutil.copy(header, folder / "include")
            break
