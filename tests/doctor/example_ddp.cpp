// A training as users write it, which is right: Ddp on three ranks, a data loader, batches that
// cannot be cut evenly, micro-batches, batch normalisation, a schedule, a checkpoint. What
// mutants.cmake makes wrong in it, the doctor has to find.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "datasets/digits.h"
#include "engine/autograd/ops/ops.h"
#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/core/rng.h"
#include "engine/data/data_loader.h"
#include "engine/nn/layers.h"
#include "engine/nn/state_dict.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "engine/parallel/ddp/ddp.h"

namespace {

using namespace lockstep;

constexpr int kRanks = 3;
constexpr std::size_t kBatch = 100;
constexpr double kRate = 0.1;
constexpr std::size_t kEpochs = 4;

std::shared_ptr<nn::Sequential> make_model(Device device, std::uint64_t seed) {
  Rng rng(seed);
  const auto model = std::make_shared<nn::Sequential>(std::vector<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Linear>(64, 24, rng), std::make_shared<nn::BatchNorm1d>(24),
      std::make_shared<nn::ReLU>(), std::make_shared<nn::Linear>(24, 10, rng)});
  model->to(device);
  return model;
}

std::unique_ptr<data::DataLoader> make_loader(const comm::Communicator& group, Device device) {
  data::SamplerOptions sampling;
  sampling.num_samples = datasets::kNumTrainDigits;
  sampling.batch_size = kBatch;
  sampling.world_size = static_cast<std::size_t>(group.world_size());
  sampling.rank = static_cast<std::size_t>(group.rank());
  sampling.seed = 7;
  auto sampler = [sampling](std::uint64_t epoch) { return data::exact_batches(sampling, epoch); };
  const auto rows =
      std::make_shared<data::LabelledRows>(datasets::load_digits(0, datasets::kNumTrainDigits));
  data::BatchOptions options;
  options.device = device;
  return std::make_unique<data::DataLoader>(rows, sampler, options);
}

// The rank's part of the mean over the batch: ranks average, and may have different numbers of
// rows.
Variable weighted_loss(nn::Module& net, const data::Batch& batch, const comm::Communicator& group) {
  const double weight = static_cast<double>(batch.labels.size(0)) *
                        static_cast<double>(group.world_size()) /
                        static_cast<double>(batch.num_global_rows);
  return scale(cross_entropy(net(Variable(batch.x)), batch.labels), weight);
}

double mean_over_ranks(double value, comm::Communicator& group) {
  const Tensor all = Tensor::from(std::vector<double>{value}, {1}, Device{});
  group.all_reduce(all, {.op = comm::ReduceOp::average});
  return all.item();
}

// Each step takes two batches; the gradient of the first stays on the rank.
void train(parallel::Ddp& net, comm::Communicator& group, Device device) {
  optim::Sgd sgd(net.parameters(), {.learning_rate = kRate, .momentum = 0.9});
  const auto loader = make_loader(group, device);
  const optim::Schedule schedule = optim::parse_schedule("cosine", 8 * kEpochs, 3);
  std::size_t step = 0;
  double loss = 0;
  for (std::size_t epoch = 0; epoch < kEpochs; ++epoch) {
    loader->start_epoch(epoch);
    while (const std::optional<data::Batch> first = loader->next()) {
      sgd.set_learning_rate(schedule.learning_rate(kRate, step));
      sgd.zero_grad();
      const std::optional<data::Batch> second = loader->next();
      if (second) {
        const auto no_sync = net.no_sync();
        scale(weighted_loss(net, *first, group), 0.5).backward();
      }
      const Variable last = weighted_loss(net, second ? *second : *first, group);
      scale(last, second ? 0.5 : 1.0).backward();
      sgd.step();
      loss = last.value().item();
      ++step;
    }
    const double shown = mean_over_ranks(loss, group);
    if (group.rank() == 0) fmt::print("epoch {}: loss {:.4f}\n", epoch, shown);
  }
}

void run_rank(comm::Communicator& group, const std::filesystem::path& path) {
  const Device device{DeviceType::cpu, group.rank()};
  const auto model = make_model(device, /*seed=*/static_cast<std::uint64_t>(group.rank()));
  parallel::Ddp net(model, group);
  train(net, group, device);
  if (group.rank() == 0) nn::save_weights(path, *model);
  group.barrier();
  const auto resumed = make_model(device, /*seed=*/9);
  nn::load_state_dict(*resumed, nn::load_weights(path));
}

}  // namespace

int main() {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("example." + std::to_string(::getpid()) + ".safetensors");
  int code = 0;
  try {
    comm::run_ranks(kRanks, [&](comm::Communicator& group) { run_rank(group, path); });
  } catch (const Error& error) {
    fmt::print(stderr, "example: {}\n", error.what());
    code = exit_code(error.code());
  }
  std::filesystem::remove(path);
  return code;
}
