// A recording is replayed: its chunks against the plans, its bytes against the run's counters, and
// its numbers against the plan's interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "engine/comm/thread_group.h"
#include "engine/optim/optimizer.h"
#include "engine/parallel/ddp/ddp.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/trace/counters.h"
#include "lockstep.h"
#include "tools/run/pipeline.h"
#include "tools/run/ranks.h"
#include "tools/watch/moments.h"
#include "tools/watch/recorder.h"

namespace lockstep::watch {
namespace {

using Kind = Event::Kind;

struct Case {
  std::string mode;
  int devices = 2;
  std::string plan = "auto";
  int accumulate = 1;
  std::string schedule = "1f1b";
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.mode << " on " << c.devices << ", " << c.plan << ", " << c.accumulate << ", "
       << c.schedule;
}

tools::TrainingFlags flags_of(const Case& c, int num_steps) {
  tools::TrainingFlags flags;
  flags.device = "cpu";
  flags.ranks = "threads";
  flags.comm = "own";
  flags.parallel = c.mode.starts_with("zero") ? "ddp" : c.mode == "single" ? "none" : c.mode;
  if (c.mode == "zero1") flags.shard = "optimizer";
  if (c.mode == "zero2") flags.shard = "gradients";
  if (c.mode == "zero3") flags.shard = "parameters";
  flags.devices = c.devices;
  flags.plan = c.plan;
  flags.accumulate = c.accumulate;
  flags.pipeline_schedule = c.schedule;
  flags.model = "mlp:8-8-8-8-8-8-8-8-4";
  flags.dataset = "synthetic:96x8x4";
  flags.batch = 32;
  flags.steps = num_steps;
  flags.bucket_mib = flags.first_bucket_mib = 600.0 / (1 << 20);
  return flags;
}

void train(const Case& c, int num_steps) {
  const tools::TrainingFlags flags = flags_of(c, num_steps);
  const auto num_devices = static_cast<std::size_t>(c.devices);
  tools::TrainingTask task = tools::make_task(flags, num_devices);
  tools::DevicePlacement placement;
  placement.mode = tools::parse_mode(c.mode);
  for (int i = 0; i < c.devices; ++i) placement.devices.push_back({DeviceType::cpu, i});
  if (c.mode == "pipeline") task = tools::with_pipeline(std::move(task), flags, num_devices);
  tools::train(task, placement);
}

std::map<int, std::size_t> bytes_of_run(const Case& c, int num_steps) {
  train(c, num_steps);
  std::map<int, std::size_t> bytes;
  for (int rank = 0; rank < c.devices; ++rank) bytes[rank] = trace::collective_bytes_of(rank);
  return bytes;
}

// The sum of the chunks that each rank sent, by the events.
std::map<int, std::size_t> bytes_sent(const StepRecording& recording) {
  std::map<int, std::size_t> sent;
  for (const auto& [rank, record] : recording.ranks) {
    sent[rank];
    for (const Event& event : record.events) {
      if (event.kind == Kind::call && event.name == "send") sent[rank] += event.num_bytes;
      if (event.kind != Kind::arrival) continue;
      for (const int from : event.from) {
        if (from != event.rank) sent[from] += event.num_bytes;
      }
    }
  }
  return sent;
}

// The counters of a third step are those of three steps without those of two. They count neither
// the batch's way nor the outputs', which are DataParallel's copies.
class Recorded : public ::testing::TestWithParam<Case> {};

TEST_P(Recorded, BytesAreTheCounters) {
  const std::map<int, std::size_t> before = bytes_of_run(GetParam(), 2);
  Recorder recorder(Numbers::no);
  std::map<int, std::size_t> counted = bytes_of_run(GetParam(), 3);
  StepRecording recording = recorder.take();
  EXPECT_EQ(recording.step, kRecordedStep);
  for (auto& [rank, record] : recording.ranks) {
    std::erase_if(record.events, [](const Event& event) {
      return event.kind == Kind::arrival && (event.name == "scatter" || event.name == "gather");
    });
  }
  for (auto& [rank, bytes] : counted) bytes -= before.at(rank);
  EXPECT_EQ(bytes_sent(recording), counted);
  EXPECT_EQ(counted.begin()->second > 0, GetParam().mode != "single");
}

TEST_P(Recorded, EveryEventIsInOneMomentAndInItsRanksOrder) {
  Recorder recorder(Numbers::no);
  train(GetParam(), 3);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  std::map<const Event*, std::size_t> place;
  for (std::size_t i = 0; i < story.moments.size(); ++i) {
    EXPECT_FALSE(story.moments[i].sentence.empty()) << story.moments[i].kind;
    for (const Event* event : story.moments[i].events) {
      EXPECT_TRUE(place.emplace(event, i).second) << "an event is in two moments";
    }
  }
  for (const auto& [rank, record] : recording.ranks) {
    std::size_t last = 0;
    for (const Event& event : record.events) {
      if (event.name == "barrier") continue;
      ASSERT_TRUE(place.contains(&event)) << "no moment has an event of rank " << rank;
      const bool is_computed =
          event.kind == Kind::forward || event.kind == Kind::gradient || event.kind == Kind::update;
      if (!is_computed || story.style == Style::pipeline) continue;
      EXPECT_GE(place[&event], last) << event.name;
      last = place[&event];
    }
  }
  EXPECT_EQ(story.moments.back().kind, "end");
  EXPECT_EQ(story.fault, "");
  for (const Collective& collective : story.collectives) {
    EXPECT_TRUE(collective.is_complete) << collective.operation << ' ' << collective.sequence;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Recorded,
    ::testing::Values(Case{"single", 1}, Case{"single", 1, "auto", 2}, Case{"dp", 2}, Case{"dp", 4},
                      Case{"ddp", 2}, Case{"ddp", 3, "ring"}, Case{"ddp", 8, "ring"},
                      Case{"ddp", 4, "tree"}, Case{"ddp", 4, "halving-doubling"},
                      Case{"ddp", 6, "halving-doubling"}, Case{"ddp", 4, "one-shot"},
                      Case{"ddp", 8, "two-shot"}, Case{"ddp", 4, "reduce-broadcast"},
                      Case{"ddp", 4, "hierarchical"}, Case{"ddp", 2, "auto", 2}, Case{"zero1", 4},
                      Case{"zero2", 3}, Case{"zero3", 4}, Case{"zero3", 2, "auto", 2},
                      Case{"pipeline", 4}, Case{"pipeline", 2, "auto", 1, "gpipe"},
                      Case{"pipeline", 2, "auto", 1, "interleaved"}, Case{"tensor", 2}));

// --- chunks and numbers of an all-reduce ---

using Move = std::tuple<std::size_t, int, int, std::size_t, std::size_t, bool>;

std::set<Move> moves_of(const plan::CollectivePlan& plan) {
  std::set<Move> moves;
  for (std::size_t step = 0; step < plan.steps.size(); ++step) {
    for (const plan::Transfer& t : plan.steps[step].transfers) {
      moves.emplace(step, t.from_rank, t.to_rank, t.chunk.offset, t.chunk.count,
                    t.combine == plan::Combine::add);
    }
  }
  return moves;
}

std::set<Move> moves_of(const StepRecording& recording, std::uint64_t sequence) {
  std::set<Move> moves;
  for (const auto& [rank, record] : recording.ranks) {
    for (const Event& event : record.events) {
      if (event.kind != Kind::arrival || event.number != sequence) continue;
      for (const int from : event.from) {
        moves.emplace(event.step, from, rank, event.offset, event.num_elements, event.adds);
      }
    }
  }
  return moves;
}

class Replayed : public ::testing::TestWithParam<std::tuple<std::string, int>> {};

TEST_P(Replayed, ChunksAndNumbersAreThePlans) {
  const auto& [name, world_size] = GetParam();
  Recorder recorder(Numbers::yes);
  train({.mode = "ddp", .devices = world_size, .plan = name}, 3);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  ASSERT_GE(story.collectives.size(), 3U) << "several buckets";
  for (const Collective& collective : story.collectives) {
    const plan::CollectivePlan plan = plan::all_reduce_plan(plan::parse_all_reduce_plan(name),
                                                            world_size, collective.num_elements);
    EXPECT_EQ(moves_of(recording, collective.sequence), moves_of(plan));
    plan::RankBuffers buffers;
    for (const auto& [rank, record] : recording.ranks) {
      for (const Event& event : record.events) {
        if (event.kind != Kind::call || event.number != collective.sequence) continue;
        buffers.emplace_back(event.values.begin(), event.values.end());
        for (double& value : buffers.back()) value /= collective.averages ? world_size : 1;
      }
    }
    ASSERT_EQ(buffers.size(), recording.ranks.size());
    for (std::size_t step = 0; step < plan.steps.size(); ++step) {
      plan::interpret_step(plan.steps[step], buffers);
      for (const auto& [rank, record] : recording.ranks) {
        for (const Event& event : record.events) {
          const bool is_its = event.kind == Kind::arrival && event.step == step &&
                              event.number == collective.sequence;
          for (std::size_t i = 0; is_its && i < event.num_elements; ++i) {
            EXPECT_NEAR(event.values[i], buffers[static_cast<std::size_t>(rank)][event.offset + i],
                        1e-6);
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Replayed,
                         ::testing::Combine(::testing::Values("ring", "tree", "halving-doubling",
                                                              "one-shot", "two-shot",
                                                              "reduce-broadcast"),
                                            ::testing::Values(2, 5)));

TEST(Recording, AnAllReduceStartsWhileBackwardGoesOn) {
  Recorder recorder(Numbers::no);
  train({.mode = "ddp", .devices = 2}, 3);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  const auto is_call = [](const Moment& moment) { return moment.kind == "call"; };
  const auto call = std::ranges::find_if(story.moments, is_call);
  ASSERT_NE(call, story.moments.end());
  EXPECT_THAT(call->sentence, ::testing::HasSubstr("Bucket 0 is full on every rank"));
  EXPECT_TRUE(std::any_of(call, story.moments.end(),
                          [](const Moment& later) { return later.kind == "backward"; }));
}

// The stages of an interleaved pipeline form a ring: the last one sends activations to the first.
TEST(Recording, TheLastStageOfAnInterleavedPipelineSendsActivationsToTheFirst) {
  Recorder recorder(Numbers::no);
  train({.mode = "pipeline", .devices = 2, .schedule = "interleaved"}, 3);
  const StepRecording recording = recorder.take();
  std::map<std::string, int> num_sent;  // by the sentence without its size
  for (const Moment& moment : tell(recording).moments) {
    if (moment.kind == "message") ++num_sent[moment.sentence.substr(0, moment.sentence.find(" ("))];
  }
  const int num_on = num_sent["Stage 0 sends what it computed to stage 1"];
  const int num_around = num_sent["Stage 1 sends what it computed to stage 0"];
  EXPECT_GT(num_around, 0);
  EXPECT_EQ(num_on, 2 * num_around);
  EXPECT_EQ(num_sent["Stage 1 sends a gradient back to stage 0"], num_on);
  EXPECT_EQ(num_sent["Stage 0 sends a gradient back to stage 1"], num_around);
}

TEST(Recording, UnitsKeepTheirNumbersFromPassToPassAndAreSentInEach) {
  Recorder recorder(Numbers::no);
  train({.mode = "zero3", .devices = 2, .accumulate = 2}, 3);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  std::map<std::string, std::set<std::vector<std::size_t>>> parameters_of;
  std::size_t num_reduced = 0;
  for (const Collective& collective : story.collectives) {
    if (collective.operation != "reduce_scatter") continue;
    parameters_of[collective.label].insert(collective.parameters);
    ++num_reduced;
  }
  EXPECT_EQ(2 * parameters_of.size(), num_reduced);
  for (const auto& [label, parameters] : parameters_of) EXPECT_EQ(parameters.size(), 1U) << label;
  for (const Moment& moment : story.moments) {
    EXPECT_THAT(moment.reason, ::testing::Not(::testing::HasSubstr("nothing is sent yet")));
  }
}

// --- programs with a fault, and programs that record nothing ---

enum class Averaging { none, all };

void train_by_hand(Averaging averaging) {
  comm::run_ranks(2, [&](comm::Communicator& ranks) {
    const auto net = nn::make_mlp("mlp:8-6-4", /*seed=*/0);
    optim::Sgd sgd(net->parameters(), {.learning_rate = 0.1});
    const std::vector<std::int64_t> labels(4, ranks.rank());
    const Tensor x = Tensor::full({4, 8}, 1.0 + ranks.rank(), DType::float32, Device{});
    for (int step = 0; step < 3; ++step) {
      sgd.zero_grad();
      cross_entropy((*net)(x), Tensor::from(labels, {4}, Device{})).backward();
      for (const Variable& parameter : net->parameters()) {
        if (averaging == Averaging::none) break;
        ranks.all_reduce(parameter.grad(), {.op = comm::ReduceOp::average});
      }
      sgd.step();
    }
  });
}

TEST(Recording, ShowsThatRanksWhichDoNotAverageHoldDifferentModels) {
  Recorder recorder(Numbers::no);
  train_by_hand(Averaging::none);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  EXPECT_EQ(story.fault, "Ranks 0 and 1 hold different models: W1 differs.");
  EXPECT_THAT(story.moments.back().sentence, ::testing::HasSubstr("weights differ"));
  EXPECT_THAT(story.moments.back().reason, ::testing::HasSubstr("No rank sent its gradients"));
}

TEST(Recording, ShowsThatRanksWhichAverageHoldTheSameModel) {
  Recorder recorder(Numbers::no);
  train_by_hand(Averaging::all);
  const StepRecording recording = recorder.take();
  const Story story = tell(recording);
  EXPECT_EQ(story.fault, "");
  EXPECT_THAT(story.moments.back().sentence, ::testing::HasSubstr("equal on both ranks"));
}

TEST(Recording, NeedsATraining) {
  Recorder recorder(Numbers::no);
  EXPECT_THROW(recorder.take(), Error);
}

}  // namespace
}  // namespace lockstep::watch
