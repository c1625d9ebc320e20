#include <memory>

#include "datasets/dataset.h"
#include "datasets/synthetic.h"
#include "engine/data/data_loader.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

using data::BatchShard;
using data::DataLoader;
using data::DataLoaderOptions;
using data::EpochSampler;
using data::LabelledRows;
using data::SamplerOptions;

constexpr std::size_t kNumRows = 6;
constexpr std::size_t kNumFeatures = 3;

std::shared_ptr<LabelledRows> some_rows() {
  return std::make_shared<LabelledRows>(
      datasets::make_synthetic_rows({kNumRows, kNumFeatures, 2}, 0, 1));
}

EpochSampler good_sampler() {
  return [](std::uint64_t epoch) {
    return data::exact_batches({.num_samples = kNumRows, .batch_size = 4}, epoch);
  };
}

void loader_that_cannot_be(Rng& rng) {
  auto broken = some_rows();
  if (rng.below(2) == 0) {
    broken->features.resize(rng.below(kNumRows * kNumFeatures));
  } else {
    broken->labels.resize(kNumRows + between(rng, 1, 9));
  }
  auto wrapping = some_rows();
  wrapping->num_features = ~std::size_t{0} / between(rng, 1, 5);
  const std::vector<std::function<void()>> uses{
      [&] { DataLoader(nullptr, good_sampler(), {}); },
      [&] { DataLoader(some_rows(), nullptr, {}); },
      [&] { DataLoader(broken, good_sampler(), {}); },
      [&] { DataLoader(wrapping, good_sampler(), {}); },
      [&] { DataLoader(some_rows(), good_sampler(), {.num_prefetched = 0}); },
      [&] { DataLoader(some_rows(), good_sampler(), {.dtype = random_integer(rng)}); },
      [&] { DataLoader(some_rows(), good_sampler(), {.device = no_device(rng)}); },
  };
  one_of(rng, uses)();
}

void row_that_is_not_there(Rng& rng) {
  const std::size_t row = kNumRows + rng.below(~std::size_t{0} - kNumRows);
  const EpochSampler sampler = [row](std::uint64_t) {
    return std::vector<BatchShard>{{{0, row}, 2, 0}};
  };
  DataLoader loader(some_rows(), sampler, {});
  loader.next();
}

void sampler_that_throws(Rng& rng) {
  const SamplerOptions options{.num_samples = kNumRows, .batch_size = 0, .rank = rng.below(5)};
  DataLoader loader(some_rows(),
                    [options](std::uint64_t epoch) { return data::exact_batches(options, epoch); },
                    {});
  loader.next();
}

void tensors_for_a_batch_that_does_not_fit(Rng& rng) {
  DataLoader loader(some_rows(), good_sampler(), {});
  const Tensor x = Tensor::zeros({4, kNumFeatures});
  const Tensor labels = Tensor::zeros({4}, DType::int64);
  const std::vector<std::function<void()>> uses{
      [&] { loader.next_into({}, labels); },
      [&] { loader.next_into(x, {}); },
      [&] { loader.next_into(x.rows(0, rng.below(4)), labels); },
      [&] { loader.next_into(x, labels.rows(0, rng.below(4))); },
      [&] {
        loader.next_into(Tensor::zeros({4, kNumFeatures + 1}), labels);
      },
      [&] { loader.next_into(Tensor::zeros(x.shape(), random_integer(rng)), labels); },
      [&] { loader.next_into(x, labels.to(DType::int32)); },
      [&] {
        loader.next_into(x.to(Device{DeviceType::cpu, 1}), labels);
      },
      [&] { loader.next_into(Tensor::zeros({}), labels); },
  };
  one_of(rng, uses)();
}

void shares_that_cannot_be(Rng& rng) {
  SamplerOptions options{.num_samples = 20, .batch_size = 6, .world_size = 2};
  const std::size_t epoch = rng.below(9);
  const std::vector<std::function<void()>> uses{
      [&] {
        options.batch_size = 0;
        data::exact_batches(options, epoch);
      },
      [&] {
        options.world_size = 0;
        data::exact_batches(options, epoch);
      },
      [&] {
        options.rank = 2 + rng.below(99);
        data::torch_batches(options, epoch);
      },
      [&] {
        options.world_size = one_of<std::size_t>(rng, {3, 5, 6, 7, 9, 100});
        data::micro_shard_batches(options, epoch);
      },
      [&] {
        options.world_size = one_of<std::size_t>(rng, {4, 5, 7, 100});
        data::torch_batches(options, epoch);
      },
      [&] {
        data::distributed_sampler(20, 0, 0, 0, epoch, data::Shuffle::on, data::DropLast::off);
      },
      [&] {
        data::distributed_sampler(20, 3, 3 + rng.below(9), 0, epoch, data::Shuffle::off,
                                  data::DropLast::on);
      },
      [&] {
        options.num_samples = (std::size_t{1} << 61) + rng.below(99);
        data::exact_batches(options, epoch);
      },
  };
  one_of(rng, uses)();
}

void take_what_is_not_there(Rng& rng) {
  const data::LabelledTensors rows = data::to_tensors(*some_rows());
  const std::vector<std::function<void()>> uses{
      [&] {
        rows.take({0, kNumRows + rng.below(99)}, {});
      },
      [&] { rows.take({0}, no_device(rng)); },
      [&] { data::LabelledTensors{}.take({0}, {}); },
      [&] { data::LabelledTensors{}.num_rows(); },
      [&] {
        data::LabelledTensors{rows.x, rows.labels.rows(0, 1)}.take({1}, {});
      },
  };
  one_of(rng, uses)();
}

}  // namespace

Misuses data_misuses() {
  return {
      {"a loader that cannot be", loader_that_cannot_be},
      {"a row that is not there", row_that_is_not_there},
      {"a sampler that throws", sampler_that_throws},
      {"tensors for a batch that does not fit", tensors_for_a_batch_that_does_not_fit},
      {"shares that cannot be", shares_that_cannot_be},
      {"rows to take that are not there", take_what_is_not_there},
      {"synthetic rows that wrap around",
       [](Rng& rng) {
         const std::size_t huge = (std::size_t{1} << 32) + rng.below(99);
         const std::size_t classes = rng.below(2) == 0 ? huge : 2;
         datasets::make_synthetic_rows({huge, huge, classes}, 0, 0);
       }},
      {"synthetic rows of no class",
       [](Rng& rng) {
         datasets::make_synthetic_rows({between(rng, 1, 5), 2, 0}, 0, 0);
       }},
      {"a data set that is none", [](Rng& rng) { datasets::parse_dataset(garbage(rng)); }},
  };
}

}  // namespace lockstep::testing
