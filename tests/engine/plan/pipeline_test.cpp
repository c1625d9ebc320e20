#include "engine/plan/pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/support/expect_error.h"

namespace lockstep::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Pass = PipelineWork::Pass;
using enum PipelineSchedule;

struct Case {
  PipelineSchedule schedule;
  std::size_t stages, micro_batches, chunks;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::size_t p : {1, 2, 3, 4, 8}) {
    for (const std::size_t m : {1, 2, 3, 4, 7, 8, 16, 24}) {
      all.push_back({gpipe, p, m, 1});
      all.push_back({one_forward_one_backward, p, m, 1});
      if (m > p && m % p != 0) continue;
      for (const std::size_t v : {1, 2, 3}) all.push_back({interleaved, p, m, v});
    }
  }
  return all;
}

PipelinePlan plan_of(const Case& c) {
  return pipeline_plan(c.schedule, c.stages, c.micro_batches, c.chunks);
}

std::string name_of(const Case& c) {
  return std::string(to_string(c.schedule)) + " " + std::to_string(c.stages) + " stages " +
         std::to_string(c.micro_batches) + " micro-batches " + std::to_string(c.chunks) + " chunks";
}

TEST(Pipeline, EveryPartPassesEveryMicroBatchOnceForwardThenBack) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const PipelinePlan plan = plan_of(c);
    ASSERT_EQ(plan.stages.size(), c.stages);
    for (const std::vector<PipelineWork>& works : plan.stages) {
      EXPECT_EQ(works.size(), 2 * c.micro_batches * c.chunks);
      std::set<std::pair<std::size_t, std::size_t>> forward, backward;
      for (const PipelineWork& work : works) {
        const std::pair key(work.chunk, work.micro_batch);
        if (work.pass == Pass::forward) {
          EXPECT_TRUE(forward.insert(key).second);
        } else {
          EXPECT_TRUE(forward.contains(key));
          EXPECT_TRUE(backward.insert(key).second);
        }
      }
      EXPECT_EQ(forward, backward);
    }
  }
}

// Slot by slot, from the definition: what a work needs was done in an earlier slot.
TEST(Pipeline, NoWorkBeginsBeforeWhatItNeeds) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const PipelinePlan plan = plan_of(c);
    const PipelineTimes slots = pipeline_slots(plan);
    std::map<std::tuple<Pass, std::size_t, std::size_t>, double> ends;
    for (std::size_t s = 0; s < c.stages; ++s) {
      for (std::size_t i = 0; i < plan.stages[s].size(); ++i) {
        const PipelineWork& work = plan.stages[s][i];
        ends[{work.pass, plan.part_of(s, work.chunk), work.micro_batch}] = slots.end[s][i];
        if (i > 0) {
          EXPECT_GE(slots.begin[s][i], slots.end[s][i - 1]);
        }
      }
    }
    const std::size_t last = plan.num_parts() - 1;
    for (const auto& [key, end] : ends) {
      const auto [pass, part, micro_batch] = key;
      if (pass == Pass::forward && part > 0) {
        EXPECT_GE(end - 1, ends.at({pass, part - 1, micro_batch}));
      }
      if (pass == Pass::backward) {
        EXPECT_GE(end - 1, ends.at({Pass::forward, part, micro_batch}));
        if (part < last) {
          EXPECT_GE(end - 1, ends.at({pass, part + 1, micro_batch}));
        }
      }
    }
  }
}

TEST(Pipeline, TheBubbleIsTheFormulas) {
  for (const Case& c : cases()) {
    // Fewer micro-batches than stages leave gaps between a stage's chunks.
    if (c.chunks > 1 && c.micro_batches < c.stages) continue;
    SCOPED_TRACE(name_of(c));
    const auto p = static_cast<double>(c.stages);
    const auto works = static_cast<double>(c.micro_batches * c.chunks);
    EXPECT_NEAR(pipeline_bubble(plan_of(c)), (p - 1) / (works + p - 1), 1e-12);
    EXPECT_NEAR(pipeline_bubble_formula(c.stages, c.micro_batches, c.chunks),
                (p - 1) / (works + p - 1), 1e-12);
  }
}

TEST(Pipeline, OneForwardOneBackwardKeepsAtMostAsManyAsStages) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    const PipelinePlan plan = plan_of(c);
    for (std::size_t s = 0; s < c.stages; ++s) {
      if (c.schedule == gpipe) {
        EXPECT_EQ(most_kept(plan, s), c.micro_batches);
      }
      if (c.schedule == one_forward_one_backward) {
        EXPECT_EQ(most_kept(plan, s), std::min(c.micro_batches, c.stages - s));
      }
    }
  }
}

TEST(Pipeline, EveryScheduleGoesBackInTheOrderOfMicroBatches) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(name_of(c));
    for (const std::vector<PipelineWork>& works : plan_of(c).stages) {
      std::map<std::size_t, std::size_t> next;  // keyed by chunk
      for (const PipelineWork& work : works) {
        if (work.pass == Pass::forward) continue;
        EXPECT_EQ(work.micro_batch, next[work.chunk]++);
      }
    }
  }
}

TEST(Pipeline, OneForwardOneBackwardIsMegatrons) {
  const PipelinePlan plan = pipeline_plan(one_forward_one_backward, 4, 8);
  EXPECT_EQ(to_string(plan),
            "1f1b: 4 stages, 8 micro-batches\n"
            "  stage 0  F0 F1 F2 F3 .  .  .  B0 F4 B1 F5 B2 F6 B3 F7 B4 .  B5 .  B6 .  B7\n"
            "  stage 1  .  F0 F1 F2 .  .  B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 .  B6 .  B7 .\n"
            "  stage 2  .  .  F0 F1 .  B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5 F7 B6 .  B7 .  .\n"
            "  stage 3  .  .  .  F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5 F6 B6 F7 B7 .  .  .\n"
            "  activations kept at most: 4 3 2 1\n"
            "  bubble: 27.3 % of the slots; (4-1)/(8+4-1) = 27.3 %\n");
}

TEST(Pipeline, InterleavedChunksAreNamed) {
  const std::string text = to_string(pipeline_plan(interleaved, 2, 2, 2));
  EXPECT_THAT(text, HasSubstr("interleaved: 2 stages of 2 chunks, 2 micro-batches\n"));
  EXPECT_THAT(text, HasSubstr("F0a F1a F0b F1b"));
  EXPECT_THAT(text, HasSubstr("bubble: 20.0 % of the slots; (2-1)/(2*2+2-1) = 20.0 %\n"));
}

TEST(Pipeline, RefusesWhatNoScheduleTakes) {
  using lockstep::testing::expect_error;
  const auto usage = ErrorCode::Usage;
  expect_error(usage, "use 4 or 8", [] { pipeline_plan(interleaved, 4, 6, 2); });
  expect_error(usage, "use interleaved", [] { pipeline_plan(gpipe, 4, 6, 2); });
  expect_error(usage, "at least 1 stage", [] { pipeline_plan(gpipe, 0, 6); });
  expect_error(usage, "1f1b", [] { parse_pipeline_schedule("1f2b"); });
}

TEST(Pipeline, CutsABatchIntoAsManyMicroBatchesAsFit) {
  EXPECT_EQ(fitting_micro_batches(one_forward_one_backward, 4, 8, 28), 8u);
  EXPECT_EQ(fitting_micro_batches(one_forward_one_backward, 4, 8, 5), 5u);
  EXPECT_EQ(fitting_micro_batches(interleaved, 4, 8, 7), 4u);
  EXPECT_EQ(fitting_micro_batches(interleaved, 4, 8, 3), 3u);
}

TEST(Pipeline, BackwardPassesMayTakeLonger) {
  const PipelinePlan plan = pipeline_plan(gpipe, 1, 3);
  EXPECT_EQ(time_pipeline(plan, {{1}, {2}, {}, {0.5}}).length, 3 * 1 + 3 * 2 + 2 * 0.5);
}

TEST(Pipeline, AStageThatWaitsForeverIsAnError) {
  PipelinePlan plan = pipeline_plan(one_forward_one_backward, 2, 2);
  std::swap(plan.stages[1][0], plan.stages[1][1]);
  EXPECT_THROW(pipeline_slots(plan), Error);
}

TEST(Pipeline, PartsAreAsEvenAsLayersAllow) {
  EXPECT_THAT(balanced_parts({1, 1, 1, 1}, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(balanced_parts({4, 1, 1, 2}, 2), ElementsAre(0, 1, 4));
  EXPECT_THAT(balanced_parts({9, 1, 1}, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(balanced_parts({1, 1, 9}, 3), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(balanced_parts({0, 0, 0}, 3), ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace lockstep::plan
