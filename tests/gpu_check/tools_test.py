"""What is read off ncu's and the tuner's words."""

from fakes import FolderTest

import products
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


class Products(FolderTest):
    def test_a_line_for_each_product_that_was_timed(self):
        stage = self.stage()
        stage.file("bench").with_suffix(".log").write_text(
            "debug: cublasLtMatmul refuses: not supported (cuBLAS status 15)\n"
            "debug: timed 8 algorithms of linear [64, 256] x 784: 3.10 us, the first 6.20 us\n"
            "more\n"
        )
        products.show_timed(stage)
        (row,) = self.rows()
        self.assertEqual((row["name"], row["figure"]), ("product of linear 64x256x784", 2.0))
        self.assertEqual(row["detail"], "first algorithm 6.20 us, fastest of 8 3.10 us")

    def test_without_tuning_there_is_nothing_to_tell(self):
        stage = self.stage()
        stage.part("products", products.show_timed)
        self.assertEqual([row["verdict"] for row in self.rows()], ["skipped"])