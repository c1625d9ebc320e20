#include "tools/run/test_rows.h"

#include "engine/nn/loss.h"
#include "engine/trace/counters.h"

namespace lockstep::tools {
namespace {

// The number of labels that the logits get right; for a text, the sum of their losses.
double judge(const TrainingTask& task, const Variable& logits, const Tensor& labels) {
  if (!task.is_text()) return static_cast<double>(nn::count_correct(logits.value(), labels));
  return parallel::sum_cross_entropy(logits, labels).item();
}

// Judges this rank's part of the test rows, and adds up.
double judge_test_rows(const TrainingTask& task, parallel::Strategy& strategy) {
  const data::LabelledRows& test = task.data->test;
  data::SamplerOptions options;
  options.num_samples = test.num_rows();
  options.batch_size = test.is_text() ? task.batch : 1024;
  options.windows = test.windows();
  options.rank = strategy.shard();
  options.world_size = strategy.num_shards();
  options.shuffle = data::Shuffle::off;
  data::DataLoader loader(
      std::shared_ptr<const data::LabelledRows>(task.data, &test),
      [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
      {.device = strategy.devices()[0], .dtype = task.dtype, .row_shape = task.model_data().row});
  const NoGradScope no_grad;
  strategy.module()->eval();
  double sum = 0;
  while (const std::optional<data::Batch> batch = loader.next()) {
    const bool is_empty = batch->labels.num_elements() == 0;
    if (is_empty && !strategy.is_in_parts()) continue;  // else ranks make each other's passes
    const Variable logits = strategy.evaluate(batch->x);
    if (logits.defined() && !is_empty) sum += judge(task, logits, batch->labels);
  }
  strategy.module()->train();
  return sum;
}

// While one lives, all ranks have rank 0's running statistics, which are those that are saved.
class StatisticsOfRank0 {
 public:
  StatisticsOfRank0(const TrainingTask& task, const Strategies& strategies) {
    const parallel::Strategy& first = *strategies[0];
    if (first.num_ranks() == 1 || !task.has_own_statistics()) return;
    const trace::UncountedScope no_part_of_a_step({first.rank()});
    const std::vector<Tensor> of_first = first.module()->buffers();
    for (const auto& strategy : strategies) {
      const std::vector<Tensor> buffers = strategy->module()->buffers();
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        own_.emplace_back(buffers[i], buffers[i].clone());
        if (first.communicator() != nullptr) {
          first.communicator()->broadcast(buffers[i], 0).wait();
        } else if (strategy.get() != &first) {
          buffers[i].copy_from(of_first[i]);
        }
      }
    }
  }
  StatisticsOfRank0(const StatisticsOfRank0&) = delete;
  StatisticsOfRank0& operator=(const StatisticsOfRank0&) = delete;
  ~StatisticsOfRank0() {
    for (const auto& [buffer, own] : own_) buffer.copy_from(own);
  }

 private:
  std::vector<std::pair<Tensor, Tensor>> own_;
};

}  // namespace

double mean_over_test(const TrainingTask& task, const Strategies& strategies) {
  const StatisticsOfRank0 shared(task, strategies);
  double sum = 0;
  for (const auto& strategy : strategies) sum += judge_test_rows(task, *strategy);
  const data::LabelledRows& test = task.data->test;
  return sum_over_ranks(*strategies[0], {sum})[0] /
         static_cast<double>(test.num_rows() * test.labels_per_row());
}

}  // namespace lockstep::tools
