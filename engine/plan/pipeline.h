// The pipeline plan: stages hold parts of a model one behind the other, micro-batches pass through
// all of them forward and back, and the schedule says in which order each stage works on which.
//
//   gpipe        all forward passes, then all backward passes: a stage keeps the activations of
//                every micro-batch. Source: Huang et al., "GPipe", NeurIPS 2019.
//   1f1b         a few forward passes fill the pipeline, then forward and backward take turns: the
//                same time, but a stage keeps at most as many micro-batches as there are stages.
//                Source: Narayanan et al., "PipeDream", SOSP 2019 (its flushing form).
//   interleaved  1f1b with several smaller parts (chunks) a stage: part c * stages + s is chunk c
//                of stage s, so the bubble is as many times shorter, for as many times the
//                messages. Source: Narayanan et al., "Efficient large-scale language model training
//                on GPU clusters using Megatron-LM", SC 2021.
//
// In all three the backward passes of a part take the micro-batches in the same order, so gradients
// are added in the same order.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::plan {

enum class PipelineSchedule { gpipe, one_forward_one_backward, interleaved };

// "gpipe", "1f1b", "interleaved". Throws Error{Usage} that lists the names.
std::string_view to_string(PipelineSchedule schedule);
PipelineSchedule parse_pipeline_schedule(std::string_view name);

// One stage's work on one micro-batch.
struct PipelineWork {
  enum class Pass { forward, backward } pass = Pass::forward;
  std::size_t micro_batch = 0;
  std::size_t chunk = 0;  // number among the stage's parts

  bool operator==(const PipelineWork&) const = default;
};

struct PipelinePlan {
  PipelineSchedule schedule = PipelineSchedule::gpipe;
  std::size_t num_stages = 1;
  std::size_t num_micro_batches = 1;
  std::size_t num_chunks = 1;                     // parts of the model that a stage holds
  std::vector<std::vector<PipelineWork>> stages;  // each in the order in which it is done

  std::size_t num_parts() const { return num_stages * num_chunks; }
  std::size_t part_of(std::size_t stage, std::size_t chunk) const {
    return chunk * num_stages + stage;
  }
  std::size_t stage_of(std::size_t part) const { return part % num_stages; }
  bool operator==(const PipelinePlan&) const = default;
};

// Throws Error{Usage} for a size of 0, for several chunks unless interleaved, and for interleaved
// micro-batches, if they are more than the stages, that are no multiple of them.
PipelinePlan pipeline_plan(PipelineSchedule schedule, std::size_t num_stages,
                           std::size_t num_micro_batches, std::size_t num_chunks = 1);

// The most micro-batches up to `wanted` that num_rows can be cut into and the schedule takes.
// REQUIRES: pipeline_plan() takes the wanted ones; rows.
std::size_t fitting_micro_batches(PipelineSchedule schedule, std::size_t num_stages,
                                  std::size_t wanted, std::size_t num_rows);

// How long each part's work takes, in any unit.
struct PipelineCosts {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> hop;  // between a part and the next; one less than parts
  // Every backward pass but the first micro-batch's takes this much longer, to add to gradients.
  std::vector<double> again = {};
};

struct PipelineTimes {
  std::vector<std::vector<double>> begin;  // indexed as the plan's stages
  std::vector<std::vector<double>> end;
  double length = 0;  // until the last stage is done
};

// When each work begins and ends: as soon as its stage has done the one before, and what it needs
// of another part has arrived. Throws Error{State} for a plan in which stages wait for each other.
PipelineTimes time_pipeline(const PipelinePlan& plan, const PipelineCosts& costs);

// The same with one slot of time for each work, and none for a hop.
PipelineTimes pipeline_slots(const PipelinePlan& plan);

// The most micro-batches whose activations a stage keeps at once; those of one chunk count as 1.
std::size_t most_kept(const PipelinePlan& plan, std::size_t stage);

// The share of the slots in which the stages are idle, and the formula for it:
// (p - 1) / (v m + p - 1) for p stages, m micro-batches and v chunks.
double pipeline_bubble(const PipelinePlan& plan);
double pipeline_bubble_formula(std::size_t num_stages, std::size_t num_micro_batches,
                               std::size_t num_chunks = 1);

// "forward 3", "backward 0", of chunk b "forward 3b".
std::string describe(const PipelinePlan& plan, const PipelineWork& work);

// A line per stage with a column per slot ("F0" forward, "B0" backward, of chunk b "F0b"; "." idle)
// and what it keeps at most; then the bubble beside the formula.
std::string to_string(const PipelinePlan& plan);

// Cuts layers into num_parts consecutive parts such that the costliest part costs as little as
// possible: layers [first[i], first[i + 1]) are part i; the last entry is the number of layers.
// REQUIRES: as many layers as parts, or more.
std::vector<std::size_t> balanced_parts(const std::vector<double>& costs, std::size_t num_parts);

}  // namespace lockstep::plan
