"""What is read off ncu's and the tuner's words."""

from fakes import FolderTest

import epilogues
import tools
from stage import Failed

TABLE = """==PROF== Connected to process 7
median step ...
"ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"
"","","","us","Kbyte"
"0","7","sgemm<float, 4>","1,002.5","2.5"
"1","7","softmax","2","1"
==PROF== Disconnected
"""
NCU = f"print('''{TABLE}''')"


class Tools(FolderTest):
    def test_a_profile_is_read_in_nanoseconds_and_bytes(self):
        rows = tools.profiled(TABLE)
        self.assertEqual(
            [(row["gpu__time_duration.sum"], row["dram__bytes.sum"]) for row in rows],
            [(1002500.0, 2500.0), (2000.0, 1000.0)],
        )
        self.assertEqual(rows[0]["Kernel Name"], "sgemm<float, 4>")

    def test_what_is_no_profile_is_said(self):
        for text in ("", "==ERROR== no permission\n", '"ID","gpu__time_duration.sum"\n'):
            with self.assertRaises(Failed):
                tools.profiled(text)

    def test_the_tools_run_and_their_findings_are_lines(self):
        stage = self.stage()
        folder = self.folder / "tools"
        self.program(folder / "ncu", NCU)
        self.program(folder / "compute-sanitizer", "import sys\nprint('ERROR SUMMARY: 1 error')\nsys.exit(1)")
        (group,) = stage.check.programs.groups()
        group["program"] = "cuda_kernels_tests"
        before = tools.tool
        tools.tool = lambda name: folder / name
        self.addCleanup(setattr, tools, "tool", before)
        tools.run(stage)
        verdicts = [(row["name"].split(",")[0], row["verdict"]) for row in self.rows()]
        self.assertEqual(
            verdicts[:2],
            [
                (f"hand-written kernels under compute-sanitizer {kind}", "FAILED")
                for kind in ("memcheck", "racecheck")
            ],
        )
        self.assertIn(("node 2 of a step", "measured"), verdicts)

    def test_a_tool_that_is_missing_is_skipped(self):
        stage = self.stage()
        stage.part("part", lambda stage: tools.tool("no-such-tool"))
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped"])


class Epilogues(FolderTest):
    def key(self, finish, vector=1, activation=1):
        key = [0] * 21
        key[:6] = 77, 0, 1, 64, 256, 784
        key[14:17] = finish, activation, vector
        return key

    def test_a_product_says_what_its_epilogue_leaves_to_a_kernel(self):
        self.assertFalse(epilogues.is_left_to_kernels(self.key(0), 1))
        self.assertFalse(epilogues.is_left_to_kernels(self.key(1), 6))
        self.assertTrue(epilogues.is_left_to_kernels(self.key(1), 4))
        self.assertFalse(epilogues.is_left_to_kernels(self.key(1, activation=0), 4))
        self.assertTrue(epilogues.is_left_to_kernels(self.key(3), 1))
        self.assertFalse(epilogues.is_left_to_kernels(self.key(3), 512))
        self.assertTrue(epilogues.is_left_to_kernels(self.key(4), 136))
        self.assertFalse(epilogues.is_left_to_kernels(self.key(4), 152))

    def test_a_line_for_each_product_of_the_tuners_file(self):
        stage = self.stage()
        key = " ".join(map(str, self.key(1)))
        stage.check.tuning_cache.write_text(
            f"lockstep tuning 1\nNVIDIA H100\t130100\t{key} \t4 1024 3.250\t{'0' * 15}7 {'0' * 16} \n"
        )
        epilogues.show_choices(stage)
        all_of_them, row = self.rows()
        self.assertEqual(
            (all_of_them["figure"], all_of_them["detail"]), (1, "of 1, of which 1 have a finish")
        )
        self.assertEqual((row["name"], row["figure"]), ("product 64x256x784, TF32, forward", 3.25))
        self.assertIn("BIAS, then a kernel", row["detail"])

    def test_a_line_for_each_product_whose_epilogues_were_tried(self):
        stage = self.stage()
        stage.file("bench").with_suffix(".log").write_text(
            "debug: cublasLtMatmul refuses: not supported (cuBLAS status 15)\n"
            "debug: epilogues of linear [64, 256] x 784: 134: 8 found, 2 refused, 3.10 us; 6: 3 found, 3 refused; 1: 0 found, 0 refused\n"
            "more\n"
        )
        epilogues.show_tried(stage)
        (row,) = self.rows()
        self.assertEqual((row["name"], row["figure"]), ("epilogues of linear 64x256x784", 2))
        self.assertEqual(
            row["detail"],
            "RELU_AUX_BIAS 8 algorithms, 2 refused, 3.10 us; RELU_BIAS 3 algorithms, 3 refused; "
            "DEFAULT has no algorithm",
        )

    def test_without_tuning_there_is_nothing_to_tell(self):
        stage = self.stage()
        stage.part("epilogues", epilogues.show_tried)
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped"])

    def test_a_damaged_file_is_one_line(self):
        stage = self.stage()
        stage.check.tuning_cache.write_text("lockstep tuning 1\nrubbish\n")
        stage.part("algorithms", epilogues.show_choices)
        self.assertEqual([row["verdict"] for row in self.rows()], ["FAILED"])
