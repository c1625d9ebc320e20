// The table for people: what its columns say, and that it fits a terminal.
#include "tools/show/row_table.h"
#include "tools/text/format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runtime/logical_device.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::tools {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

RunRow row_of(Mode mode, std::size_t num_devices, std::size_t num_threads, double epoch_seconds) {
  RunRow row;
  row.mode = to_string(mode);
  row.devices = num_devices;
  row.threads_per_device = num_threads;
  TrainingResult result;
  result.epoch_seconds = {epoch_seconds};
  result.num_steps = 10;
  result.busy_fraction = std::vector<double>(num_devices, 0.5);
  row.take_result(result);
  return row;
}

RunRow compared(RunRow row, const RunRow& baseline, std::size_t num_cores) {
  row.compare_with(baseline, num_cores);
  return row;
}

TEST(Scaling, IdealIsTheUsableCoresAgainstTheBaselines) {
  const RunRow one_thread = row_of(Mode::single, 1, 1, 8);
  const RunRow all_threads = row_of(Mode::single, 1, 4, 8);
  const auto ideal = [](const RunRow& row, const RunRow& baseline) {
    return compared(row, baseline, 4).ideal_speedup;
  };
  EXPECT_EQ(ideal(row_of(Mode::ddp, 2, 1, 8), one_thread), 2);
  EXPECT_EQ(ideal(row_of(Mode::ddp, 2, 2, 8), one_thread), 4);
  EXPECT_EQ(ideal(row_of(Mode::ddp, 8, 1, 8), one_thread), 4);  // as many as there are
  EXPECT_EQ(ideal(row_of(Mode::ddp, 2, 2, 8), all_threads), 1);
  EXPECT_EQ(ideal(row_of(Mode::ddp, 2, 1, 8), all_threads), 0.5);  // half of the cores
  EXPECT_EQ(ideal(row_of(Mode::ddp, 8, 1, 8), row_of(Mode::single, 1, 64, 8)), 1);
}

TEST(Scaling, SpeedUpComparesRowsASecondAndEfficiencyTheIdeal) {
  RunRow baseline = row_of(Mode::single, 1, 1, 8);
  EXPECT_EQ(compared(row_of(Mode::ddp, 2, 1, 4), baseline, 2).speedup, 2);
  EXPECT_EQ(compared(row_of(Mode::ddp, 2, 1, 4), baseline, 2).efficiency, 1);
  // Steps of 64 rows a device: twice the rows in the same time.
  baseline.epoch_rows = 640;
  RunRow row = row_of(Mode::ddp, 2, 1, 8);
  row.epoch_rows = 1280;
  EXPECT_EQ(compared(row, baseline, 2).speedup, 2);
}

TEST(Scaling, OnGpusIdealCountsPhysicalDevices) {
  RunRow baseline = row_of(Mode::single, 1, 1, 8);
  RunRow row = row_of(Mode::ddp, 4, 1, 8);
  baseline.is_on_cores = row.is_on_cores = false;
  row.physical_devices = 2;
  EXPECT_EQ(compared(row, baseline, 64).ideal_speedup, 2);
}

TEST(Scaling, TheBaselineIsTheLastSingleRow) {
  const std::vector<RunRow> rows{row_of(Mode::single, 1, 1, 1), row_of(Mode::ddp, 2, 1, 2),
                                 row_of(Mode::single, 1, 1, 3), row_of(Mode::ddp, 2, 1, 4)};
  EXPECT_EQ(baseline_of(rows, 0), 0u);
  EXPECT_EQ(baseline_of(rows, 1), 0u);
  EXPECT_EQ(baseline_of(rows, 2), 2u);
  EXPECT_EQ(baseline_of(rows, 3), 2u);
}

TEST(RowTable, HasEightyColumnsWhateverItHolds) {
  EXPECT_EQ(table_header(TableWidth::terminal).size(), kTerminalColumns);
  RunRow longest = row_of(Mode::single, 4096, 1024, 12345678);
  longest.contended = true;
  longest.result.num_steps = 1;
  longest.result.busy_fraction = {1};
  longest.max_abs_weight_diff = 1.5e-100;
  for (const std::size_t bytes : {0UL, 999UL, 1000UL, 1023998UL, 1048574488UL, 999999999999UL}) {
    longest.result.comm_bytes_per_step = bytes;
    for (const double seconds : {1e-9, 999.4e-9, 1e-3, 0.9994, 99.94, 999.4, 99999.0}) {
      TrainingResult result = longest.result;
      result.epoch_seconds = {seconds};
      longest.take_result(result);
      longest.compare_with(longest, runtime::num_cores());
      const std::string line = table_line(longest, TableWidth::terminal);
      EXPECT_EQ(line.size(), kTerminalColumns) << line;
      EXPECT_GT(table_line(longest, TableWidth::wide).size(), kTerminalColumns);
    }
  }
  EXPECT_EQ(table_header(TableWidth::wide).size(), table_line(longest, TableWidth::wide).size());
}

TEST(RowTable, ADisturbedRowIsMarkedBehindItsMode) {
  RunRow row = row_of(Mode::single, 1, 1, 1);
  row.compare_with(row, 1);
  EXPECT_THAT(table_line(row, TableWidth::terminal), StartsWith("single  "));
  row.contended = true;
  EXPECT_THAT(table_line(row, TableWidth::terminal), StartsWith("single* "));
  row.contended.reset();
  EXPECT_THAT(table_line(row, TableWidth::terminal), StartsWith("single? "));
}

// 8.3 s on one device, of whose time two should take half.
TEST(RowTable, UpToFivePercentMoreThanTheIdealIsNoise) {
  const RunRow baseline = row_of(Mode::single, 1, 1, 8.3);
  const auto two = [&](double seconds) {
    return compared(row_of(Mode::ddp, 2, 1, seconds), baseline, 2);
  };
  const auto line = [&](double seconds) { return table_line(two(seconds), TableWidth::wide); };
  EXPECT_THAT(line(4.6), HasSubstr(" 90 %"));
  EXPECT_THAT(efficiency_notes({baseline, two(4.6)}), IsEmpty());
  EXPECT_THAT(line(4), AllOf(StartsWith("ddp  "), HasSubstr("2.08x"), HasSubstr(" 100 %")));
  EXPECT_THAT(efficiency_notes({baseline, two(4)}), ElementsAre(HasSubstr("shown as 100 %")));
  EXPECT_THAT(line(2), AllOf(StartsWith("ddp+ "), HasSubstr(" 208 %")));
  EXPECT_THAT(efficiency_notes({baseline, two(2)}), ElementsAre(StartsWith("+ faster than")));
}

TEST(RowTable, LegendDefinesIdealEfficiencyAndBusy) {
  const std::string legend = table_legend(row_of(Mode::single, 1, 2, 1));
  EXPECT_THAT(legend, StartsWith("baseline: single, 1 device with 2 threads\nideal: cores "));
  EXPECT_THAT(legend, HasSubstr("efficiency: speed-up / ideal"));
  EXPECT_THAT(legend,
              HasSubstr("busy: fraction of the steps that a device spent computing on a core"));
  testing::expect_narrow(legend);
}

}  // namespace
}  // namespace lockstep::tools
