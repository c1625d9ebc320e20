"""A fresh copy of the working folder, in which a page's commands may write what they like."""

import shutil
import subprocess
import tempfile
from pathlib import Path


def source_files(root):
    """What belongs to the project: all that git knows or does not ignore; without git all but builds."""
    if shutil.which("git"):
        command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        if listed.returncode == 0:
            return [name for name in listed.stdout.decode().split("\0") if name and (root / name).exists()]
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [str(path) for path in found if path.parts[0] not in {"build", "out", ".git", ".cache"}]


class Workspace:
    """Deleted with this object. build/release leads to the build whose programs are used."""

    def __init__(self, root, build):
        self._folder = tempfile.TemporaryDirectory(prefix="lockstep-pages-")
        self.path = Path(self._folder.name) / "lockstep"
        for name in source_files(root):
            target = self.path / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, target, follow_symlinks=False)
        (self.path / "build").mkdir(exist_ok=True)
        (self.path / "build" / "release").symlink_to(build)

    def close(self):
        self._folder.cleanup()
