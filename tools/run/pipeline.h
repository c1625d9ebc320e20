// Training by a pipeline: --micro-batches, --pipeline-schedule and --chunks.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/parallel/pipeline/pipeline_stage.h"
#include "engine/trace/recorder.h"
#include "tools/run/task.h"
#include "tools/run/workload.h"

namespace lockstep::tools {

// Reads what follows from the flags alone. Throws Error{Usage} for what a pipeline cannot do.
parallel::PipelineOptions read_pipeline(const TrainingFlags& flags, const std::string& model,
                                        std::size_t num_stages);

// The default model (task.h), with a layer for each part of the pipeline.
std::string default_pipeline_model(const TrainingFlags& flags, std::size_t num_stages);

// The task cut for so many stages; each layer costs its multiplications.
// Throws Error{Usage} besides for more micro-batches than rows and more stages than layers.
TrainingTask with_pipeline(TrainingTask task, const TrainingFlags& flags, std::size_t num_stages);

// The layers of a model as a pipeline takes them (parallel::layers_of): layer i begins at
// first[i] of those of a run file, whose last entry is their number, and costs that many
// multiplications a row.
struct PipelineLayers {
  std::vector<std::size_t> first;
  std::vector<double> costs;
};
PipelineLayers pipeline_layers(std::span<const FileLayer> layers);

// The share of a step for which the stages neither computed forward nor backward, from the first
// stage's first forward pass to the last backward pass; the median over the steps of a recording.
// Absent where it has none. tracks: of the stages.
std::optional<double> measured_bubble(const trace::Recording& recording,
                                      const std::vector<int>& tracks);

// "bubble: 31.2 % of the stages' time measured; (p-1)/(m+p-1) = 27.3 % ...": the measured one
// beside the formula; empty without a pipeline.
std::string bubble_text(const TrainingTask& task, std::size_t num_stages,
                        std::optional<double> measured);
double bubble_formula(const parallel::PipelineOptions& options, std::size_t num_stages);

}  // namespace lockstep::tools
