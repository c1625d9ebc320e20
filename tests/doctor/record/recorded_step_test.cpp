// The events that a step of two ranks leaves in the folder LOCKSTEP_AUDIT. A process installs its
// recorder as it starts, so this test installs one of its own.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/nn/mlp.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "tests/support/temp_folder.h"
#include "tools/doctor/record/recorder.h"

namespace lockstep::record {
namespace {

using nlohmann::json;

// One folder for the whole program: a process writes one file.
const std::filesystem::path& folder() {
  static const testing::TempFolder folder;
  return folder.path();
}

class RecordedScope {
 public:
  RecordedScope() {
    ::setenv("LOCKSTEP_AUDIT", folder().c_str(), 1);
    trace::set_observer(&recorder_);
  }
  ~RecordedScope() { trace::set_observer(nullptr); }

 private:
  Recorder recorder_;
};

std::vector<json> events_since(std::size_t first) {
  std::vector<json> events;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) events.push_back(json::parse(line));
  }
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(first));
  return events;
}

void train_two_ranks() {
  comm::run_ranks(2, [](comm::Communicator& group) {
    const Device device{DeviceType::cpu, group.rank()};
    const auto model = nn::make_mlp("mlp:3-4-2", /*seed=*/0);
    model->to(device);
    parallel::Ddp net(model, group);
    optim::Sgd sgd(net.parameters(), {.learning_rate = 0.5});
    Rng rng(static_cast<std::uint64_t>(group.rank()));
    const Tensor x = Tensor::uniform({5, 3}, -1, 1, rng, DType::float32, device);
    const Tensor labels = Tensor::from(std::vector<std::int64_t>{0, 1, 0, 1, 0}, {5}, device);
    cross_entropy(net(Variable(x)), labels).backward();
    sgd.step();
  });
}

TEST(Audit, RecordsOfAStepWhatEachRankUsed) {
  std::vector<json> events;
  {
    const RecordedScope recorded;
    train_two_ranks();
    events = events_since(0);
  }
  std::vector<json> steps;
  std::ranges::copy_if(events, std::back_inserter(steps),
                       [](const json& event) { return event["event"] == "step"; });
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["group"], steps[1]["group"]);
  EXPECT_NE(steps[0]["rank"], steps[1]["rank"]);
  for (const json& step : steps) {
    EXPECT_EQ(step["world_size"], 2);
    EXPECT_EQ(step["learning_rate"], 0.5);
    const json& loss = step["passes"].at(0).at(1).at(0);
    EXPECT_EQ(loss["num_rows"], 5);
    EXPECT_EQ(loss["hashes"].size(), 5u);
    ASSERT_EQ(step["parameters"].size(), 4u);
    for (std::size_t p = 0; p < 4; ++p) {
      EXPECT_EQ(step["parameters"][p]["used"], steps[0]["parameters"][p]["used"]) << "averaged";
      EXPECT_EQ(step["parameters"][p]["before"], steps[0]["parameters"][p]["before"]);
      EXPECT_NE(step["parameters"][p]["parts"].at(0)["gradient"], step["parameters"][p]["used"])
          << "the rank's own gradient is not the average";
    }
  }
}

TEST(Audit, RecordsNothingWhereItIsOff) {
  const std::size_t before = events_since(0).size();
  train_two_ranks();
  EXPECT_EQ(events_since(before).size(), 0u);
}

}  // namespace
}  // namespace lockstep::record
