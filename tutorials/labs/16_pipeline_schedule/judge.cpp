#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "engine/core/error.h"
#include "engine/plan/pipeline.h"
#include "tutorials/labs/judging/values.h"

namespace lab {
namespace {

namespace plan = lockstep::plan;
using PlanPass = plan::PipelineWork::Pass;

json pipeline_case(std::size_t stages, std::size_t micro_batches) {
  return json{{"stages", stages}, {"micro_batches", micro_batches}};
}

json ahead_case(std::size_t stages, std::size_t micro_batches) {
  json inputs = pipeline_case(stages, micro_batches);
  inputs["call"] = "num_ahead";
  return inputs;
}

json turns_case(std::size_t ahead, std::size_t micro_batches) {
  json inputs = pipeline_case(1, micro_batches);
  inputs["ahead"] = ahead;
  return inputs;
}

plan::PipelinePlan read_stages(const json& inputs, const json& answer) {
  plan::PipelinePlan found;
  found.schedule = plan::PipelineSchedule::one_forward_one_backward;
  found.num_stages = inputs.at("stages");
  found.num_micro_batches = inputs.at("micro_batches");
  for (const json& works : answer) {
    std::vector<plan::PipelineWork>& stage = found.stages.emplace_back();
    for (const json& work : works) {
      stage.push_back({work.at(0) == "F" ? PlanPass::forward : PlanPass::backward, work.at(1), 0});
    }
  }
  return found;
}

std::string name_of(const plan::PipelineWork& work) {
  return fmt::format("{}{}", work.pass == PlanPass::forward ? 'F' : 'B', work.micro_batch);
}

// Every stage does each work once, and backward after its forward.
std::string judge_work(const plan::PipelinePlan& found) {
  for (std::size_t s = 0; s < found.num_stages; ++s) {
    std::set<std::string> done;
    for (const plan::PipelineWork& work : found.stages.at(s)) {
      if (work.micro_batch >= found.num_micro_batches) {
        return fmt::format("stage {} does {}: there are {} micro-batches", s, name_of(work),
                           found.num_micro_batches);
      }
      if (!done.insert(name_of(work)).second) {
        return fmt::format("stage {} does {} twice", s, name_of(work));
      }
      if (work.pass == PlanPass::backward && !done.contains(fmt::format("F{}", work.micro_batch))) {
        return fmt::format("stage {} does {} before F{}", s, name_of(work), work.micro_batch);
      }
    }
    for (const char pass : {'F', 'B'}) {
      for (std::size_t i = 0; i < found.num_micro_batches; ++i) {
        const std::string name = fmt::format("{}{}", pass, i);
        if (!done.contains(name)) return fmt::format("stage {} never does {}", s, name);
      }
    }
  }
  return {};
}

// The lists can be done, by stages that wait for each other.
std::string judge_dependencies(const json& inputs, const json& answer) {
  const plan::PipelinePlan found = read_stages(inputs, answer);
  const std::string wrong = judge_work(found);
  if (!wrong.empty()) return wrong;
  try {
    plan::pipeline_slots(found);
  } catch (const lockstep::Error& waits) {
    return fmt::format("{}, {}: {}", counted(found.num_stages, "stage"),
                       counted(found.num_micro_batches, "micro-batch"), waits.message());
  }
  return {};
}

std::string judge_kept(const json& inputs, const json& answer) {
  const std::string wrong = judge_dependencies(inputs, answer);
  if (!wrong.empty()) return wrong;
  const plan::PipelinePlan found = read_stages(inputs, answer);
  for (std::size_t s = 0; s < found.num_stages; ++s) {
    const std::size_t expected = std::min(found.num_stages - s, found.num_micro_batches);
    const std::size_t kept = plan::most_kept(found, s);
    if (kept <= expected) continue;
    return fmt::format("{}, {}: stage {} keeps {} of them, expected {}",
                       counted(found.num_stages, "stage"),
                       counted(found.num_micro_batches, "micro-batch"), s, kept, expected);
  }
  return {};
}

std::string judge_bubble(const json& inputs, const json& answer) {
  const std::string wrong = judge_dependencies(inputs, answer);
  if (!wrong.empty()) return wrong;
  const plan::PipelinePlan found = read_stages(inputs, answer);
  const std::size_t expected = 2 * (found.num_micro_batches + found.num_stages - 1);
  const auto slots = static_cast<std::size_t>(plan::pipeline_slots(found).length);
  if (slots == expected) return {};
  return fmt::format("{}, {}: done after {} slots, expected {}", counted(found.num_stages, "stage"),
                     counted(found.num_micro_batches, "micro-batch"), slots, expected);
}

std::string judge_schedule(const json& inputs, const json& answer) {
  const std::string wrong = judge_kept(inputs, answer);
  return wrong.empty() ? judge_bubble(inputs, answer) : wrong;
}

std::string judge_num_ahead(const json& inputs, const json& answer) {
  const std::size_t stages = inputs.at("stages"), micro_batches = inputs.at("micro_batches");
  Sizes expected(stages);
  for (std::size_t s = 0; s < stages; ++s) expected[s] = std::min(stages - 1 - s, micro_batches);
  return differ(fmt::format("{}, {}: passes ahead by stage", counted(stages, "stage"),
                            counted(micro_batches, "micro-batch")),
                expected, answer.get<Sizes>());
}

std::string judge_turns(const json& inputs, const json& answer) {
  const std::size_t ahead = inputs.at("ahead"), micro_batches = inputs.at("micro_batches");
  std::string expected, found;
  for (std::size_t i = 0; i < micro_batches; ++i) {
    if (ahead + i < micro_batches) expected += fmt::format("F{} ", ahead + i);
    expected += fmt::format("B{} ", i);
  }
  for (const json& work : answer) {
    found += fmt::format("{}{} ", work.at(0).get<std::string>(), work.at(1).get<std::size_t>());
  }
  if (found == expected) return {};
  return fmt::format("{} ahead, {}: expected {}found {}", ahead,
                     counted(micro_batches, "micro-batch"), expected, found);
}

}  // namespace

Lab pipeline_schedule_lab() {
  Lab lab{"16_pipeline_schedule", "The 1F1B schedule: what each stage of a pipeline does when", {}};
  lab.checks = {
      visible("passes_ahead_of_four_stages", 10,
              "stage s of p has p - 1 - s stages behind it, and there may be fewer micro-batches",
              std::vector<json>{ahead_case(4, 8), ahead_case(4, 2)}, judge_num_ahead),
      visible("turns_of_a_stage", 10,
              "a turn is a forward and a backward pass; at the end no forward pass is left",
              turns_case(2, 5), judge_turns),
      visible("two_stages_pass_all_micro_batches", 10,
              "each stage does every micro-batch forward once and backward once",
              pipeline_case(2, 3), judge_dependencies),
      visible("activations_of_four_stages", 10,
              "p - 1 - s forward passes go ahead; each turn then adds one and gives one back",
              pipeline_case(4, 8), judge_kept),
      visible("bubble_of_four_stages", 10,
              "with fewer passes ahead, a stage behind has nothing to do", pipeline_case(4, 8),
              judge_bubble),
      {"drawn_pipelines", Shown::hidden, 30,
       "in each turn the forward pass comes first, as long as there is one left",
       [](lockstep::Rng& rng) {
         std::vector<json> cases{pipeline_case(1, draw_between(rng, 2, 9))};
         for (int i = 0; i < 5; ++i) {
           const std::size_t stages = draw_between(rng, 3, 12);
           cases.push_back(pipeline_case(stages, stages + draw_between(rng, 0, 20)));
         }
         return cases;
       },
       judge_schedule},
      {"fewer_micro_batches_than_stages", Shown::hidden, 20,
       "no more forward passes go ahead than there are micro-batches",
       [](lockstep::Rng& rng) {
         const std::size_t stages = draw_between(rng, 5, 9);
         return std::vector<json>{pipeline_case(stages, stages - 3), pipeline_case(stages, 1)};
       },
       judge_schedule}};
  return lab;
}

}  // namespace lab
