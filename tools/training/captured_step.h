// Steps of the training loop that are captured once and then launched as graphs.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/step_graph.h"
#include "tools/training/model.h"

namespace lockstep::tools {

// One graph, and what it leaves behind, by local rank.
struct CapturedStep {
  explicit CapturedStep(const LocalModels& models) : graph(models.devices()) {}

  runtime::StepGraph graph;
  std::vector<Tensor> losses;
  std::vector<Tensor> norms;  // of the gradients, where they are clipped or logged
};

// The steps of an epoch have the same rows but for the last one, whose batch may be smaller: a
// graph for each, over the same tensors, of which the smaller batch is the first rows.
struct CapturedSteps {
  CapturedSteps(const TrainingTask& task, const LocalModels& models)
      : of_full_batch(models), of_last_batch(models) {
    const plan::ScatterPlan plan = plan::scatter_plan(task.rows_of_full_batch(), models.num_ranks);
    for (const RankModel& model : models.ranks) {
      const auto rank = static_cast<std::size_t>(model.rank);
      const std::size_t rows = rank < plan.parts.size() ? plan.parts[rank].size : 0;
      const Device device = model.devices[0];
      x.push_back(Tensor::empty({rows, task.data->train.num_features}, task.dtype, device));
      labels.push_back(Tensor::empty({rows}, DType::int64, device));
    }
  }

  CapturedStep& step_of(const std::vector<data::Batch>& batches) {
    const bool is_full =
        std::ranges::equal(batches, labels, [](const data::Batch& batch, const Tensor& full) {
          return batch.labels.num_elements() == full.num_elements();
        });
    return is_full ? of_full_batch : of_last_batch;
  }

  // Where batches are put, by local rank.
  std::vector<Tensor> x;       // [rows, features]
  std::vector<Tensor> labels;  // [rows] int64
  CapturedStep of_full_batch;
  CapturedStep of_last_batch;
};

}  // namespace lockstep::tools
