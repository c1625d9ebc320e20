#include "tools/training/accuracy.h"

#include "engine/autograd/variable.h"
#include "engine/data/data_loader.h"
#include "engine/nn/loss.h"

namespace lockstep::tools {
namespace {

std::size_t count_correct_rows(const TrainingTask& task, const RankModel& model,
                               std::size_t num_ranks) {
  const data::LabelledRows& test = task.data->test;
  data::SamplerOptions options;
  options.num_samples = test.num_rows();
  options.batch_size = 1024;
  options.rank = static_cast<std::size_t>(model.rank);
  options.world_size = num_ranks;
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      std::shared_ptr<const data::LabelledRows>(task.data, &test),
      [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {model.devices[0], task.dtype, 4});
  const NoGradScope no_grad;
  model.inner->eval();
  std::size_t num_correct = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    if (batch->labels.num_elements() == 0) continue;
    const Tensor logits = (*model.inner)(Variable(batch->x)).value();
    num_correct += nn::count_correct(logits, batch->labels);
  }
  model.inner->train();
  return num_correct;
}

}  // namespace

double measure_accuracy(const TrainingTask& task, const LocalModels& models) {
  std::size_t correct = 0;
  for (const RankModel& model : models.ranks) {
    correct += count_correct_rows(task, model, models.num_ranks);
  }
  return models.sum_over_ranks({static_cast<double>(correct)})[0] /
         static_cast<double>(task.data->test.num_rows());
}

}  // namespace lockstep::tools
