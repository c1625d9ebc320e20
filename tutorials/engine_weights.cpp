#include "tutorials/engine_weights.h"

#include <lockstep.h>

#include "tutorials/common.h"

namespace lockstep::tutorial {
namespace {

constexpr std::uint64_t kSeed = 0;  // draws weights and rows

std::shared_ptr<nn::Module> make_model(const Settings& settings, std::uint64_t seed) {
  return nn::make_mlp(fmt::format("mlp:64-{}-10", settings.hidden), seed, DType::float64);
}

Weights values_of(const nn::Module& model) {
  Weights weights;
  for (const Variable& parameter : model.parameters()) {
    weights.push_back(parameter.value().to_vector<double>());
  }
  return weights;
}

// The training loop of every rank.
void train(comm::Communicator& ranks, nn::Module& model, parallel::Ddp& ddp, Device device,
           const Settings& settings) {
  data::BatchOptions options{.batch = settings.batch_size, .shuffle = true, .seed = kSeed};
  options.rank = ranks.rank();
  options.world_size = ranks.world_size();
  options.device = device;
  options.dtype = DType::float64;
  data::DataLoader loader(datasets::load_digits(0, datasets::kNumTrainDigits), options);
  optim::Sgd optimizer(model.parameters(),
                       {.learning_rate = settings.learning_rate, .momentum = settings.momentum});
  for (int epoch = 0; epoch < settings.epochs; ++epoch) {
    for (const data::Batch& batch : loader) {
      optimizer.zero_grad();
      const Variable sum = cross_entropy(ddp(batch.x), batch.labels, Reduction::sum);
      const auto global_rows = static_cast<double>(batch.num_global_rows);
      scale(sum, ranks.world_size() / global_rows).backward();  // Ddp averages over the ranks
      optimizer.step();
    }
  }
}

}  // namespace

Digits load_digits() {
  const data::LabelledTensors train = datasets::load_digits().train;
  const auto labels = train.labels.to_vector<std::int64_t>();
  return {train.x.to(DType::float64).to_vector<double>(), {labels.begin(), labels.end()}};
}

Weights initial_weights(const Settings& settings, std::uint64_t seed) {
  return values_of(*make_model(settings, seed));
}

std::vector<std::size_t> epoch_order(int epoch) {
  return data::epoch_order(datasets::kNumTrainDigits, kSeed, static_cast<std::uint64_t>(epoch),
                           data::Shuffle::on);
}

Weights train_through_engine(const Settings& settings, int num_devices) {
  Weights weights;
  const auto work = [&](comm::Communicator& ranks) {
    const Device device{DeviceType::cpu, ranks.rank()};
    const auto model = make_model(settings, kSeed);
    model->to(device);
    parallel::Ddp ddp(model, ranks, {.bucket_mib = settings.bucket_kib / 1024});
    train(ranks, *model, ddp, device, settings);
    if (ranks.rank() == ranks.world_size() - 1) weights = values_of(*model);
  };
  comm::ThreadGroupOptions options;
  options.default_plan = plan::AllReducePlan::ring;
  comm::run_ranks(num_devices, work, options);
  return weights;
}

int run_with_flags(int argc, char** argv, std::string_view question,
                   const std::function<void(const Settings&)>& body) {
  Settings settings;
  const auto add_flags = [&](Flags& flags, Options&) {
    flags.add_number("--hidden", settings.hidden, 1, 1024, "neurons of the hidden layer");
    flags.add_number("--bucket-kib", settings.bucket_kib, 0.001, 1e6, "size of a DDP bucket");
  };
  const auto run = [&](const Options& options) {
    if (options.fast) settings.epochs = 3;
    body(settings);
  };
  return run_main(argc, argv, question, run,
                  {.num_devices = 4, .add_flags = add_flags, .hardware = Setup::Hardware::cpu});
}

}  // namespace lockstep::tutorial
