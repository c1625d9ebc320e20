// The page of a prediction: what it was predicted for, its bands, and many lines told apart.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "tests/support/temp_folder.h"
#include "tests/tools/page/sample_run.h"
#include "tools/page/page.h"

namespace lockstep::tools::page {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

nlohmann::ordered_json predicted(const std::string& mode, int devices, const std::string& what_if) {
  nlohmann::ordered_json row = testing::sample_row(mode, devices, 0.002);
  row["kind"] = "predicted";
  row["topology"] = "hgx-h100-8";
  row["step_seconds_band"] = {0.0015, 0.003};
  row["speedup"] = 1.5;
  row["ideal_speedup"] = devices;
  row["breakdown_seconds"] = testing::sample_run()["rows"][2]["breakdown_seconds"];
  for (const char* of_training : {"peak_bytes", "final_loss", "test_accuracy", "epoch_accuracy"})
    row.erase(of_training);
  if (!what_if.empty()) row["what_if"] = what_if;
  return row;
}

std::string page_of(std::vector<nlohmann::ordered_json> rows, const std::string& model = "mlp:8-2",
                    int num_runs = 1) {
  const testing::TempFolder folder;
  nlohmann::ordered_json json = testing::sample_run();
  json["config"] = {{"topology", "hgx-h100-8"}, {"model", model}, {"dataset", "digits"}};
  json["rows"] = std::move(rows);
  std::vector<PageRun> runs;
  for (int i = 0; i < num_runs; ++i) {
    const std::filesystem::path path = folder / ("run" + std::to_string(i) + ".json");
    testing::write_json_file(path, json);
    runs.push_back(load_run(path, {}, "test"));
  }
  name_runs(runs);
  return make_page(runs);
}

TEST(PredictionPage, SaysForWhatAndShowsTheBand) {
  const std::string page = page_of({predicted("single", 1, ""), predicted("ddp", 8, "")});
  EXPECT_THAT(page, AllOf(HasSubstr("mlp:8-2 on digits, predicted for hgx-h100-8; made"),
                          HasSubstr("<h3>The machine that made the prediction</h3>"),
                          HasSubstr("<td>1.5 to 3 ms</td>"), HasSubstr("<line class=\"band\"")));
  EXPECT_THAT(page, AllOf(Not(HasSubstr("made without --trace")), Not(HasSubstr("compare records")),
                          Not(HasSubstr("<th>accuracy</th>"))));
}

TEST(PredictionPage, KeepsRowsOfAWhatIfApart) {
  const std::string page =
      page_of({predicted("single", 1, ""), predicted("ddp", 2, ""), predicted("ddp", 8, ""),
               predicted("single", 1, "bandwidth=10x"), predicted("ddp", 2, "bandwidth=10x"),
               predicted("ddp", 8, "bandwidth=10x")});
  EXPECT_THAT(page, AllOf(HasSubstr(">ddp x8, predicted<"),
                          HasSubstr(">ddp x8 (bandwidth=10x), predicted<"),
                          HasSubstr("</svg>ddp (bandwidth=10x), predicted</li>"),
                          HasSubstr("<td>bandwidth=10x</td>"), HasSubstr("devices (count)")));
}

// The classes of the lines in the key below each picture.
TEST(PredictionPage, GivesEachModeAColourAndItsWholeName) {
  std::vector<nlohmann::ordered_json> rows{predicted("single", 1, "")};
  for (const char* mode : {"dp", "ddp", "hierarchical", "device_allreduce", "nccl_replicated",
                           "cpu_reduce", "cpu_parameter_server"}) {
    rows.push_back(predicted(mode, 8, ""));
  }
  const std::string page = page_of(rows);
  const std::string key = page.substr(page.find("<figure class=\"speedup\""));
  const std::regex entry("<li><svg width=\"30\"[^>]*><g class=\"predicted (s-[a-z0-9]+)\">");
  std::set<std::string> colors;
  const auto begin = std::sregex_iterator(key.begin(), key.end(), entry);
  for (auto found = begin; found != std::sregex_iterator(); ++found) colors.insert((*found)[1]);
  EXPECT_EQ(colors.size(), 7u);
  EXPECT_EQ(std::distance(begin, std::sregex_iterator()), 7);
  EXPECT_THAT(key, HasSubstr("</svg>cpu_parameter_server, predicted</li>"));
}

TEST(PredictionPage, LeavesRoomBesideALongName) {
  const std::string name = "mlp:" + std::string(200, '9') + "-2";
  const std::string page = page_of({predicted("single", 1, ""), predicted("ddp", 8, "")}, name, 2);
  EXPECT_THAT(page, AllOf(HasSubstr("<td><span title=\"" + name + "\">…9"),
                          HasSubstr("<td>hgx-h100-8, predicted</td>")));
}

TEST(PredictionPage, WritesMicrosecondsAndBytesAlike) {
  nlohmann::ordered_json small = predicted("ddp", 2, ""), large = predicted("ddp", 8, "");
  small["step_seconds"] = large["step_seconds"] = 20e-6;
  small["median_epoch_seconds"] = large["median_epoch_seconds"] = 20e-6;
  small["comm_bytes_per_device_per_step"] = 76800;
  large["comm_bytes_per_device_per_step"] = 1 << 20;
  const std::string page = page_of({small, large});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("µs")), HasSubstr("(us)"), HasSubstr("<td>0.0732 MiB</td>"),
                          HasSubstr("<td>1 MiB</td>")));
}

}  // namespace
}  // namespace lockstep::tools::page
