"""The command as a whole, on a pack whose program `lockstep` does what FAKE says."""

import json
import os
import re
import signal
import subprocess
import time
import unittest.mock
from pathlib import Path

from fakes import SCRIPT, TREE, FolderTest

import machine


class Command(FolderTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out"

    def start(self, *words, fake="", script=SCRIPT):
        environment = {**os.environ, "FAKE": fake, "LOCKSTEP_TORCH_PYTHON": "/no/python"}
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([str(script), *map(str, words)], env=environment, text=True, **pipes)

    def run_command(self, *words, **options):
        process = self.start(*words, **options)
        out, err = process.communicate(timeout=100)
        return process.returncode, out, err

    def result(self):
        return json.loads((self.out / "gpu_check.json").read_text())

    def test_wrong_words_are_one_line_and_exit_code_2(self):
        for words in ("", "frob", "run frist out", "run first out more", "run --from", "run --emulated=yes", "pack",
                      "pack a b", "pack --arch sm_90 f", "measured --frob"):
            code, out, err = self.run_command(*words.split())
            self.assertEqual((code, out), (2, ""), words)
            self.assertRegex(err, r"\Agpu_check\.sh: .*\(see --help\)\n\Z", words)

    def test_help_is_the_opening_comment(self):
        code, out, err = self.run_command("--help")
        self.assertEqual((code, err), (0, ""))
        self.assertIn("gpu_check.sh run --emulated", out)

    def test_a_folder_without_programs_is_one_line(self):
        code, _, err = self.run_command("run", "--emulated", "--from", self.folder, self.out)
        self.assertEqual(code, 1)
        self.assertEqual(err.count("\n"), 1)
        self.assertIn("neither an unpacked pack nor a folder that gpu_check.sh has built", err)

    def test_a_machine_without_a_gpu_says_so_in_one_line(self):
        if machine.gpus():
            self.skipTest("this machine has a GPU")
        code, out, err = self.run_command("run", "first", "--from", self.pack(), self.out)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"\Agpu_check\.sh: no NVIDIA GPU was found here [^\n]*\n\Z")
        self.assertFalse(self.out.exists())

    def test_a_gpu_is_listed_beside_a_warning_and_an_unknown_column(self):
        gpus = [{"name": "NVIDIA H200", "uuid": "GPU-1", "memory": {"total": 1 << 34, "used": 0}}]
        described = {"gpus": gpus, "driver": "580.65", "unknown_fields": ["compute_cap"],
                     "warns": {"exit_code": 14, "says": "WARNING: infoROM is corrupted"}}
        (self.folder / "machine.json").write_text(json.dumps(described))
        fake = TREE / "tests" / "support" / "fake_nvidia_smi"
        variables = {"PATH": f"{fake}:{os.environ['PATH']}", "LOCKSTEP_FAKE_GPUS": str(self.folder / "machine.json")}
        with unittest.mock.patch.dict(os.environ, variables):
            (gpu,) = machine.gpus()
        self.assertEqual((gpu["name"], gpu["driver_version"]), ("NVIDIA H200", "580.65"))
        self.assertNotIn("compute_cap", gpu)

    def test_what_was_found_stays_valid_when_the_script_is_killed(self):
        pack = self.pack()
        process = self.start("run", "--emulated", "first", "--from", pack, self.out, fake="train:hang")
        for line in process.stdout:  # the line before the program that hangs
            if line.startswith("cuda_runtime_tests"):
                break
        logs = self.out / "logs"
        deadline = time.monotonic() + 30
        while not list(logs.glob("*-one_device*.log")) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        result = self.result()
        self.assertEqual(result["rows"][-1]["name"], "cuda_runtime_tests")
        deadline = time.monotonic() + 30
        while self.processes_of(pack) and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(self.processes_of(pack), [])

    def processes_of(self, pack):
        found = []
        for entry in os.listdir("/proc"):
            try:
                words = Path(f"/proc/{entry}/cmdline").read_text(errors="replace") if entry.isdigit() else ""
            except OSError:
                continue
            if str(pack / "bin") in words:
                found.append(words.replace("\0", " "))
        return found

    def test_it_works_from_where_a_pack_lies(self):
        pack = self.pack()
        subprocess.run(["cp", "-r", SCRIPT, SCRIPT.parent / "gpu_check", pack], check=True)
        code, out, err = self.run_command("run", "--emulated", "first", self.out, script=pack / "gpu_check.sh")
        self.assertEqual((code, err), (0, ""), out)
        self.assertTrue(re.search("every line passed", out))
