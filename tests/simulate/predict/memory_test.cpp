// The formulas of memory.h against published figures, and what ZeRO's stages and a pipeline change.
#include "simulate/predict/memory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::predict {
namespace {

using Row = std::map<std::string, std::string>;

std::vector<std::string> cells(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream text(line);
  for (std::string word; std::getline(text, word, ',');) words.push_back(word);
  return words;
}

std::vector<Row> published() {
  std::ifstream file(LOCKSTEP_PUBLISHED "/memory.csv");
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> columns = cells(line);
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> words = cells(line);
    EXPECT_EQ(words.size(), columns.size()) << line;
    Row& row = rows.emplace_back();
    for (std::size_t i = 0; i < words.size(); ++i) row[columns[i]] = words[i];
  }
  return rows;
}

double number(const Row& row, const char* column) {
  return std::stod(row.at(column));
}

// Bytes of a row's net on its fullest device, by the part that the row is about.
double predicted(const Row& row) {
  const TransformerShape shape{number(row, "layers"), number(row, "heads"), number(row, "channels"),
                               number(row, "context")};
  const double tensor = number(row, "tensor");
  const double stages = number(row, "pipeline");
  // A first stage of an interleaved pipeline keeps so many times the model's layers.
  const double layers = shape.layers * (1 + (stages - 1) / (stages * number(row, "interleave")) *
                                                (number(row, "interleave") > 1 ? 1 : 0));
  const Recompute recompute = row.at("recompute") == "none"   ? Recompute::none
                              : row.at("recompute") == "full" ? Recompute::full
                                                              : Recompute::attention;
  const auto kept = [&](Recompute which, bool shares_sequence) {
    return kept_of_layer(shape, which, {tensor, shares_sequence});
  };
  const Kept own = kept(recompute, row.at("sequence") == "yes");
  if (row.at("part") == "share_of_all") {
    const Kept all = kept(Recompute::none, false);
    return 100 * (2 * own.values + own.bytes) / (2 * all.values + all.bytes);
  }
  const NetMemory net{number(row, "millions") * 1e6 / tensor / stages, 0, layers * own.values,
                      layers * own.bytes};
  const DeviceMemory memory = device_memory(
      net, {parse_strategy(row.at("strategy")), static_cast<std::size_t>(number(row, "devices")),
            static_cast<std::size_t>(number(row, "batch")),
            row.at("numbers") == "mixed" ? Numbers::mixed : Numbers::fp32});
  const double bytes = row.at("part") == "activations" ? memory.activations
                       : row.at("part") == "total"
                           ? memory.total()
                           : memory.parameters + memory.gradients + memory.optimizer;
  const std::map<std::string, double> units = {{"GB", 1e9}, {"GiB", 1 << 30}, {"MiB", 1 << 20}};
  return bytes / units.at(row.at("unit"));
}

TEST(Memory, IsWithin15PercentOfPublishedFigures) {
  const std::vector<Row> rows = published();
  ASSERT_GE(rows.size(), 20U);
  double sum = 0;
  for (const Row& row : rows) {
    const double error = predicted(row) / number(row, "value") - 1;
    EXPECT_LE(std::abs(error), 0.15) << row.at("source") << ", " << row.at("net") << ", "
                                     << row.at("part") << ": " << predicted(row);
    sum += std::abs(error);
    std::printf("%-44s %-16s %-12s %8.2f %8.2f %+5.1f %%\n", row.at("source").substr(0, 44).c_str(),
                row.at("net").c_str(), row.at("part").c_str(), predicted(row), number(row, "value"),
                100 * error);
  }
  EXPECT_LE(sum / static_cast<double>(rows.size()), 0.05);
}

NetMemory net() {
  return {1e9, 1e8, 1e6, 1e5};
}

MemoryOptions with(Strategy strategy, std::size_t devices) {
  return {.strategy = strategy, .num_devices = devices, .batch = 8};
}

TEST(Memory, OneDeviceSharesNothing) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    EXPECT_EQ(device_memory(net(), with(strategy, 1)).total(),
              device_memory(net(), with(Strategy::single, 1)).total());
  }
}

TEST(Memory, StagesOfZeroNeedLessAndLess) {
  double last = device_memory(net(), with(Strategy::ddp, 8)).total();
  for (const Strategy strategy : {Strategy::zero1, Strategy::zero2, Strategy::zero3}) {
    const double total = device_memory(net(), with(strategy, 8)).total();
    EXPECT_LT(total, last) << to_string(strategy);
    last = total;
  }
}

TEST(Memory, OneForwardOneBackwardKeepsFewerMicroBatches) {
  MemoryOptions options = with(Strategy::pipeline, 4);
  options.num_micro_batches = 16;
  const DeviceMemory gpipe = device_memory(net(), options);
  options.schedule = plan::PipelineSchedule::one_forward_one_backward;
  const DeviceMemory alternating = device_memory(net(), options);
  EXPECT_DOUBLE_EQ(alternating.activations, gpipe.activations / 4);
  EXPECT_DOUBLE_EQ(alternating.parameters, 1e9);
}

TEST(Memory, TheLargestBatchIsTheLastThatFits) {
  MemoryOptions options = with(Strategy::ddp, 2);
  constexpr double kBytes = 40e9;
  options.batch = largest_batch(net(), options, kBytes);
  ASSERT_GT(options.batch, 0U);
  EXPECT_LE(device_memory(net(), options).total(), kBytes);
  ++options.batch;
  EXPECT_GT(device_memory(net(), options).total(), kBytes);
  EXPECT_EQ(largest_batch(net(), options, 1e9), 0U);
}

}  // namespace
}  // namespace lockstep::predict
