// A step of the training loop that is captured once and then launched as a graph.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/data/data_loader.h"
#include "engine/plan/scatter.h"
#include "engine/runtime/step_graph.h"
#include "tools/training/model.h"

namespace lockstep::tools {

// A step of full batches as a graph, and the tensors that it reads and writes, by local rank.
struct CapturedStep {
  CapturedStep(const TrainingTask& task, const LocalModels& models) : graph(models.devices()) {
    const plan::ScatterPlan plan = plan::scatter_plan(task.rows_of_full_batch(), models.num_ranks);
    for (const RankModel& model : models.ranks) {
      const auto rank = static_cast<std::size_t>(model.rank);
      const std::size_t rows = rank < plan.parts.size() ? plan.parts[rank].size : 0;
      const Device device = model.devices[0];
      x.push_back(Tensor::empty({rows, task.data->train.num_features}, task.dtype, device));
      labels.push_back(Tensor::empty({rows}, DType::int64, device));
    }
  }

  // Whether every rank has as many rows as in the step that is captured.
  bool is_filled_by(const std::vector<data::Batch>& batches) const {
    return std::ranges::equal(batches, labels, [](const data::Batch& batch, const Tensor& full) {
      return batch.labels.num_elements() == full.num_elements();
    });
  }

  runtime::StepGraph graph;
  std::vector<Tensor> x;       // [rows, features]
  std::vector<Tensor> labels;  // [rows] int64
  std::vector<Tensor> losses;
  std::vector<Tensor> norms;  // of the gradients, where they are clipped or logged
};

}  // namespace lockstep::tools
