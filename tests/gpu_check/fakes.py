"""Packs whose programs do what a test tells them, and checks over them."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
SCRIPT = TREE / "scripts" / "gpu_check.sh"
sys.path.insert(0, str(TREE / "scripts" / "gpu_check"))

# A program `lockstep`: $FAKE says what becomes of a subcommand, as "bench:crash train:hang".
LOCKSTEP = """
import json, os, signal, sys, time
words = sys.argv[1:]
how = dict(word.split(":") for word in os.environ.get("FAKE", "").split()).get(words[0])
if how == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if how == "hang": time.sleep(1000)
row = {"median_step_seconds": 1e-5, "samples_per_second": 1e6, "gflops": 1.5, "graph_nodes": 9, "row_shape": [], "num_classes": 3, "time_us": 7.0, "busbw_gb_per_s": 1.0,
       "plan": "ring",
       "final_loss": 2.25, "step_seconds": 1e-5, "epoch_seconds": [0.5, 0.25]}
if os.environ.get("LOCKSTEP_CUDNN") == "off": row["median_step_seconds"] = 3e-5
if "--json" in words:
    text = json.dumps({"rows": [row]})
    open(words[words.index("--json") + 1], "w").write(text)
if words[0] == "env": print("convolutions    " + os.environ.get("FAKE_CONVOLUTIONS", "cuDNN 9.1.0"))
print("done", words[0])
"""

# A test program: each of $TESTS does what its name says.
GTEST = """
import os, signal, sys, time
wanted = next(word for word in sys.argv if word.startswith("--gtest_filter=*-")).split("*-", 1)[1].split(":")
assert "--gtest_break_on_failure" in sys.argv
for name in os.environ.get("TESTS", "A.Works").split():
    if name in wanted: continue
    print("[ RUN      ]", name, flush=True)
    what = name.split(".")[1]
    if what.startswith("Crashes"): os.kill(os.getpid(), signal.SIGABRT)
    if what.startswith("Hangs"): time.sleep(1000)
    if what.startswith("Fails"): os.kill(os.getpid(), signal.SIGTRAP)
    print("[  SKIPPED ]" if what.startswith("Skips") else "[       OK ]", name, "(0 ms)", flush=True)
"""


class FolderTest(unittest.TestCase):
    """A test with a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def program(self, path, source):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{sys.executable}\n{source}")
        path.chmod(0o755)
        return path

    def pack(self):
        """A pack with the fake lockstep and one program of tests; its folder."""
        pack = self.folder / "pack"
        self.program(pack / "bin" / "lockstep", LOCKSTEP)
        self.program(pack / "bin" / "cuda_runtime_tests", GTEST)
        (pack / "share").mkdir(exist_ok=True)
        of = {"commit": "0123456789ab", "cuda": 13, "programs": ["cuda_runtime_tests"]}
        (pack / "pack.json").write_text(json.dumps(of))
        return pack

    def stage(self, limit=30):
        """A stage of a rehearsal over such a pack."""
        from main import Check
        from stage import Stage

        out = self.folder / "out"
        out.mkdir(exist_ok=True)
        return Stage(Check(self.pack(), out, True, [{"name": "emulated"}]), "first", limit)

    def rows(self):
        return json.loads((self.folder / "out" / "gpu_check.json").read_text())["rows"]
