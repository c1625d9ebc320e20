// The rules of the puzzles: what each broken one says, and what a right schedule costs and trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutorials/labs/puzzles/clock.h"
#include "tutorials/labs/puzzles/real.h"
#include "tutorials/labs/puzzles/rules.h"

namespace lockstep::testing {
namespace {

using lab::Keep;
using lab::Op;
using lab::Programs;
using lab::PuzzleSizes;
using lab::Verb;
using ::testing::HasSubstr;
using Program = std::vector<Verb>;

Verb load(int layer, Keep keep = Keep::whole) {
  return {Op::load, layer, -1, static_cast<int>(keep)};
}
Verb call(Op op, int layer, int micro_batch = -1, int other = -1) {
  return {op, layer, micro_batch, other};
}
Verb wait(int number) {
  return {Op::wait, -1, -1, number};
}

Program operator+(Program a, const Program& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// One layer; each of two GPUs has a micro-batch.
constexpr PuzzleSizes kOneLayer{.num_gpus = 2, .num_layers = 1, .num_micro_batches = 2};

Program passes(int rank) {
  return {call(Op::forward, 0, rank), call(Op::backward, 0, rank)};
}

// The same for both GPUs: `before` the passes, `after` them.
std::string wrong_with(const Program& before, const Program& after) {
  return lab::play(kOneLayer, {before + passes(0) + after, before + passes(1) + after}).wrong;
}

const Program kReduceAndUpdate = {call(Op::all_reduce, 0), wait(0), call(Op::update, 0)};

TEST(PuzzleRules, EachBrokenOneIsASentence) {
  struct Case {
    Program before;
    Program after;
    std::string said;
  };
  const Verb gather = call(Op::all_gather, 0);
  const Verb reduce = call(Op::all_reduce, 0);
  const Verb scatter = call(Op::reduce_scatter, 0);
  const Verb update = call(Op::update, 0);
  const Verb free_gradient = call(Op::free_gradient, 0);
  const Verb free_parameters = call(Op::free_parameters, 0);
  const std::vector<Case> cases = {
      {{load(0)}, kReduceAndUpdate, ""},
      {{}, kReduceAndUpdate, "no GPU loads layer 0"},
      {{load(0), load(0)}, {}, "rank 0, load(0): the GPU has loaded the layer before"},
      {{load(1)}, {}, "rank 0, load(1): layers are 0 to 0"},
      {{load(0), call(Op::forward, 0, 2)}, {}, "rank 0, forward(0, 2): micro-batches are 0 to 1"},
      {{load(0, Keep::shard)}, {}, "uses the parameters of layer 0 before they were gathered"},
      {{load(0, Keep::shard), gather}, {}, "before it waited for their all_gather"},
      {{load(0), gather}, {}, "are whole already, or being gathered"},
      {{load(0), reduce}, {}, "there is no gradient of layer 0 that backward added to"},
      {{load(0)}, {reduce, update}, "before it waited for the sum of its gradient"},
      {{load(0)}, {update}, "with the GPU's own gradient, before it was reduced"},
      {{load(0)}, {scatter, wait(0), update}, "and loaded the whole state"},
      {{load(0)}, {free_gradient}, "frees the gradient of layer 0 before it was reduced"},
      {{load(0)}, {scatter, free_gradient}, "while it is being reduced"},
      {{load(0)}, {reduce, wait(0), free_gradient}, "before the update"},
      {{load(0)}, {scatter, wait(0), free_gradient, free_gradient}, "which is not there"},
      {{load(0), free_parameters}, {}, "which were loaded, not gathered"},
      {{load(0, Keep::shard), free_parameters}, {}, "which are not gathered"},
      {{load(0, Keep::shard), gather, free_parameters}, {}, "while they are being gathered"},
      {{load(0)}, {reduce, wait(1)}, "this Work is of no collective that the GPU has started"},
      {{load(0)}, kReduceAndUpdate + Program{update}, "update(0): updates layer 0 twice"},
      {{load(0)}, kReduceAndUpdate + passes(0), "the GPU has updated layer 0 already"},
      {{load(0)}, {reduce, wait(0)}, "rank 0 never updates layer 0"},
      {{load(0, Keep::sharded_state)}, kReduceAndUpdate, "rank 0 ends with old parameters"},
      {{load(0)}, {call(Op::free_activation, 0, 0)}, "which is not there"},
      {{load(0)}, {call(Op::send_gradient, 0, 0, 2)}, "there is no other rank 2"},
      {{load(0)}, {call(Op::send_gradient, 0, 0, 1)}, "what it sends is not there for layer 0"},
  };
  for (const Case& broken : cases) {
    const std::string wrong = wrong_with(broken.before, broken.after);
    if (broken.said.empty()) {
      EXPECT_EQ(wrong, "");
    } else {
      EXPECT_THAT(wrong, HasSubstr(broken.said));
    }
  }
}

TEST(PuzzleRules, RanksMustAgreeAndNotWaitForEver) {
  const Program right = Program{load(0)} + passes(0) + kReduceAndUpdate;
  EXPECT_THAT(lab::play(kOneLayer, {right, {load(0, Keep::shard)}}).wrong,
              HasSubstr("rank 1, load(0): rank 0 keeps more or less of the layer"));
  EXPECT_EQ(lab::play(kOneLayer, {right, Program{load(0)} + passes(1)}).wrong,
            "GPUs wait for what never comes: rank 0 in wait(0) for rank 1's all_reduce(0)");
  EXPECT_THAT(lab::play(kOneLayer, {right, Program{load(0)} + passes(0)}).wrong,
              HasSubstr("rank 1, backward(0, 0): rank 0 has done this already"));
  const Program scatters = Program{load(0)} + passes(1) + Program{call(Op::reduce_scatter, 0)};
  EXPECT_THAT(lab::play(kOneLayer, {right, scatters}).wrong,
              HasSubstr("rank 1, reduce_scatter(0): rank 0 called all_reduce(0) instead"));
  PuzzleSizes pipeline = kOneLayer;
  pipeline.is_pipeline = true;
  EXPECT_THAT(lab::play(pipeline, {right, right}).wrong,
              HasSubstr("in this puzzle each is on one GPU"));
}

TEST(PuzzleClock, ComputingAndCommunicatingAtOnceSlowsBothDown) {
  using lab::Stream;
  const auto times = lab::run_pieces({{{0}, Stream::compute, 1},
                                      {{0, 1}, Stream::comm, 1},
                                      {{1}, Stream::compute, 1, {1}},
                                      {{1}, Stream::copy, 1}},
                                     2);
  const double comm_end = 1 / 0.8;
  EXPECT_DOUBLE_EQ(times[1].end, comm_end);
  EXPECT_DOUBLE_EQ(times[0].end, comm_end + 1 - comm_end * 47 / 80);
  EXPECT_DOUBLE_EQ(times[2].begin, comm_end);
  EXPECT_DOUBLE_EQ(times[2].end, comm_end + 1);
  EXPECT_DOUBLE_EQ(times[3].end, 1);
}

TEST(PuzzleMemory, IsParametersStateGradientAndActivations) {
  const PuzzleSizes one{.num_gpus = 1, .num_layers = 1, .num_micro_batches = 1};
  const Program program = Program{load(0)} + passes(0) + Program{call(Op::update, 0)};
  const lab::Played played = lab::play(one, {program});
  EXPECT_EQ(played.wrong, "");
  EXPECT_EQ(played.most_bytes, 3 * one.parameter_bytes() + 2 * one.activation_bytes());
  EXPECT_EQ(played.memory[0].back().num_bytes, 2 * one.parameter_bytes());
  EXPECT_DOUBLE_EQ(played.seconds, played.events.back().time.end);
}

// GPUs 0 and 1 have layer 0, GPUs 2 and 3 layer 1; an activation is computed twice.
TEST(PuzzleWeights, DataParallelPipelinesTrainAsOneDeviceDoes) {
  const PuzzleSizes sizes{.num_gpus = 4, .num_layers = 2, .num_micro_batches = 2};
  Programs programs;
  for (int m = 0; m < 2; ++m) {
    const Program again = {call(Op::free_activation, 0, m), call(Op::forward, 0, m),
                           call(Op::free_activation, 1, m)};
    programs.push_back(Program{load(0), call(Op::forward, 0, m),
                               call(Op::send_activation, 1, m, 2 + m),
                               call(Op::receive_gradient, 1, m, 2 + m)} +
                       again + Program{call(Op::backward, 0, m)} + kReduceAndUpdate);
  }
  for (int m = 0; m < 2; ++m) {
    programs.push_back({load(1), call(Op::receive_activation, 1, m, m), call(Op::forward, 1, m),
                        call(Op::backward, 1, m), call(Op::send_gradient, 1, m, m),
                        call(Op::all_reduce, 1), wait(0), call(Op::update, 1)});
  }
  EXPECT_EQ(lab::play(sizes, programs).wrong, "");
  EXPECT_EQ(lab::compare_with_one_device(sizes, programs), "");
}

TEST(PuzzleWeights, OfGpusThatTrainAloneDiffer) {
  const Program alone = {call(Op::update, 0)};
  const Programs programs = {Program{load(0)} + passes(0) + alone,
                             Program{load(0)} + passes(1) + alone};
  EXPECT_THAT(lab::compare_with_one_device(kOneLayer, programs),
              HasSubstr("rank 0 ends with other weights of layer 0 than one device: element 0 is"));
}

}  // namespace
}  // namespace lockstep::testing
