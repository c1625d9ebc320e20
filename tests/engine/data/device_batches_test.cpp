// Batches on the device under test are, bit for bit, those of the CPU: whatever the epochs, the
// sizes of the batches, and what is under way when a loader jumps or goes.
#include <gtest/gtest.h>

#include <numeric>

#include "engine/data/data_loader.h"
#include "engine/runtime/step_graph.h"
#include "kernels/calls.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::test_device;
using lockstep::testing::test_device_type;

constexpr std::size_t kNumFeatures = 97;

std::shared_ptr<const LabelledRows> make_rows(std::size_t num_rows) {
  auto rows = std::make_shared<LabelledRows>();
  rows->name = "noise";
  rows->num_features = kNumFeatures;
  rows->num_classes = 10;
  rows->scale = 1.0f / 255;
  rows->row_shape = {kNumFeatures};
  std::uint32_t state = 1;
  for (std::size_t i = 0; i < num_rows * kNumFeatures; ++i) {
    state = state * 1664525u + 1013904223u;
    rows->features.push_back(static_cast<std::uint8_t>(state >> 24));
  }
  for (std::size_t i = 0; i < num_rows; ++i) {
    rows->labels.push_back(static_cast<std::int64_t>(i * 7 % 10));
  }
  return rows;
}

EpochSampler exact(const SamplerOptions& options) {
  return [options](std::uint64_t epoch) { return exact_batches(options, epoch); };
}

struct HostBatch {
  std::vector<double> x;
  std::vector<std::int64_t> labels;
  Shape shape;
  std::size_t num_global_rows = 0;
  std::size_t global_offset = 0;
  bool operator==(const HostBatch&) const = default;
};

HostBatch on_host(const Batch& batch) {
  return {batch.x.to_vector<double>(), batch.labels.to_vector<std::int64_t>(), batch.x.shape(),
          batch.num_global_rows, batch.global_offset};
}

std::vector<HostBatch> epoch_of(DataLoader& loader, std::uint64_t epoch) {
  loader.start_epoch(epoch);
  std::vector<HostBatch> batches;
  while (const auto batch = loader.next()) batches.push_back(on_host(*batch));
  return batches;
}

struct Pair {
  DataLoader cpu;
  DataLoader device;
  Pair(const std::shared_ptr<const LabelledRows>& rows, const SamplerOptions& options,
       DType dtype = DType::float32)
      : cpu(rows, exact(options), {.device = Device{}, .dtype = dtype}),
        device(rows, exact(options), {.device = test_device(), .dtype = dtype}) {}
  void expect_same(std::uint64_t epoch) {
    EXPECT_EQ(epoch_of(device, epoch), epoch_of(cpu, epoch)) << "epoch " << epoch;
  }
};

TEST(DeviceBatches, OfWholeEpochsAreThoseOfTheCpu) {
  const auto rows = make_rows(103);
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Shuffle shuffle : {Shuffle::off, Shuffle::on}) {
      Pair pair(rows, {.num_samples = 103, .batch_size = 8, .seed = 5, .shuffle = shuffle}, dtype);
      for (std::uint64_t epoch = 0; epoch < 4; ++epoch) pair.expect_same(epoch);
    }
  }
}

TEST(DeviceBatches, OfAugmentedImagesAreThoseOfTheCpu) {
  const auto rows = make_rows(103);
  const auto batches = [&](Device device) {
    DataLoader loader(rows, exact({.num_samples = 103, .batch_size = 8, .seed = 5}),
                      {.seed = 5,
                       .device = device,
                       .row_shape = {kNumFeatures, 1, 1},
                       .augmentation = {.crop = true, .flip = true}});
    return std::pair(epoch_of(loader, 0), epoch_of(loader, 1));
  };
  EXPECT_EQ(batches(test_device()), batches(Device{}));
}

TEST(DeviceBatches, MayChangeTheirSizeFromStepToStep) {
  const auto rows = make_rows(200);
  const EpochSampler growing = [](std::uint64_t epoch) {
    std::vector<BatchShard> shards;
    for (std::size_t step = 0; step < 30; ++step) {
      const std::size_t size = (step * 37 + epoch * 11) % 150;
      BatchShard& shard = shards.emplace_back();
      for (std::size_t i = 0; i < size; ++i) shard.rows.push_back((step * 3 + i) % 200);
      shard.num_global_rows = size;
    }
    return shards;
  };
  DataLoader cpu(rows, growing, {.device = Device{}});
  DataLoader device(rows, growing, {.device = test_device()});
  for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(epoch_of(device, epoch), epoch_of(cpu, epoch));
  }
}

TEST(DeviceBatches, SurviveJumpsWhileOthersAreUnderWay) {
  const auto rows = make_rows(103);
  Pair pair(rows, {.num_samples = 103, .batch_size = 4, .seed = 5});
  for (const std::uint64_t epoch : {3u, 0u, 9u, 9u, 10u}) {
    pair.device.start_epoch(epoch + 100);  // begins to fetch, and is given up at once
    pair.expect_same(epoch);
    pair.device.start_epoch(epoch + 50);
    pair.device.next();  // given up in the middle
  }
}

TEST(DeviceBatches, BehindASlowConsumerStayAsTheyAre) {
  const auto rows = make_rows(400);
  Pair pair(rows, {.num_samples = 400, .batch_size = 4, .seed = 5});
  for (int epoch = 0; epoch < 2; ++epoch) {
    // Nothing is read back until the epoch is over: only streams hold the loader up.
    pair.device.start_epoch(std::uint64_t(epoch));
    std::vector<Batch> batches;
    while (auto batch = pair.device.next()) batches.push_back(*batch);
    const auto expected = epoch_of(pair.cpu, std::uint64_t(epoch));
    ASSERT_EQ(batches.size(), expected.size());
    for (std::size_t i = 0; i < batches.size(); ++i) EXPECT_EQ(on_host(batches[i]), expected[i]);
  }
}

TEST(BatchesInPlace, AreWrittenToTensorsThatStay) {
  const auto rows = make_rows(20);
  const SamplerOptions options{.num_samples = 20, .batch_size = 8, .seed = 5};
  Pair pair(rows, options);
  const Tensor x = Tensor::full({9, kNumFeatures}, -1, DType::float32, test_device());
  const Tensor labels = Tensor::full({9}, -1, DType::int64, test_device());
  std::size_t num_steps = 0;
  while (const auto expected = pair.cpu.next()) {
    x.fill(-1);
    labels.fill(-1);
    const auto batch = pair.device.next_into(x, labels);
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->x.raw(), x.raw());
    EXPECT_EQ(batch->labels.raw(), labels.raw());
    EXPECT_EQ(on_host(*batch), on_host(*expected));
    const std::size_t used = batch->labels.num_elements();
    EXPECT_EQ(labels.rows(used, 9).to_vector<std::int64_t>(),
              std::vector<std::int64_t>(9 - used, -1));
    EXPECT_EQ(x.rows(used, 9).to_vector<double>(),
              std::vector<double>((9 - used) * kNumFeatures, -1));
    ++num_steps;
  }
  EXPECT_EQ(num_steps, 3u);
  EXPECT_FALSE(pair.device.next_into(x, labels).has_value());
}

TEST(BatchesInPlace, RefuseTensorsWithTooFewRows) {
  const auto rows = make_rows(20);
  Pair pair(rows, {.num_samples = 20, .batch_size = 8});
  const Tensor x = Tensor::empty({7, kNumFeatures}, DType::float32, test_device());
  const Tensor labels = Tensor::empty({8}, DType::int64, test_device());
  expect_error(ErrorCode::Shape, "the batch has 8 rows, and there is room for 7",
               [&] { pair.device.next_into(x, labels); });
}

class GpuBatches : public ::testing::Test {
 protected:
  void SetUp() override {
    if (test_device_type() == DeviceType::cpu) GTEST_SKIP() << "a test of staged batches";
  }
};

TEST_F(GpuBatches, GiveTheirMemoryBack) {
  runtime::MemoryPool& pool = runtime::logical_device(test_device()).own_memory();
  const std::size_t before = pool.statistics().current_bytes;
  {
    Pair pair(make_rows(103), {.num_samples = 103, .batch_size = 8});
    const auto batch = pair.device.next();
    EXPECT_GT(pool.statistics().current_bytes, before);
    pair.device.start_epoch(7);
    pair.device.next();
  }
  EXPECT_EQ(pool.statistics().current_bytes, before);
}

// The loader's thread sends batches ahead while this one captures a step, and runs it.
TEST_F(GpuBatches, ComeWhileAStepIsCaptured) {
  const auto rows = make_rows(256);
  const EpochSampler growing = [](std::uint64_t) {
    std::vector<BatchShard> shards;
    for (std::size_t step = 0; step < 64; ++step) {
      BatchShard& shard = shards.emplace_back();
      shard.rows.resize(1 + step);  // every slot is made anew, again and again
      std::iota(shard.rows.begin(), shard.rows.end(), step);
      shard.num_global_rows = shard.rows.size();
    }
    return shards;
  };
  for (int round = 0; round < 10; ++round) {
    DataLoader cpu(rows, growing, {.device = Device{}});
    DataLoader loader(rows, growing, {.device = test_device()});
    const Tensor x = Tensor::zeros({64, kNumFeatures}, DType::float32, test_device());
    const Tensor labels = Tensor::zeros({64}, DType::int64, test_device());
    const Tensor result = Tensor::zeros({64, kNumFeatures}, DType::float32, test_device());
    runtime::StepGraph graph({test_device()});
    while (const auto expected = cpu.next()) {
      const auto batch = loader.next_into(x, labels);
      ASSERT_TRUE(batch.has_value());
      graph.run([&] {
        const Tensor twice = Tensor::empty(x.shape(), DType::float32, test_device());
        x.backend().add(x.stream(), {x.view(), x.view(), twice.view()});
        result.copy_from(twice);
      });
      const std::size_t used = batch->x.size(0);
      std::vector<double> doubled = expected->x.to_vector<double>();
      for (double& value : doubled) value *= 2;
      EXPECT_EQ(result.rows(0, used).to_vector<double>(), doubled);
    }
    EXPECT_TRUE(graph.is_captured());
  }
}

TEST_F(GpuBatches, LeaveAKernelsFaultToTheConsumer) {
  const auto rows = make_rows(400);
  DataLoader loader(rows, exact({.num_samples = 400, .batch_size = 4}), {.device = test_device()});
  const Tensor source = Tensor::zeros({4, 2}, DType::float32, test_device());
  const Tensor number = Tensor::from(std::vector<std::int64_t>{9}, {1}, test_device());
  const Tensor to = Tensor::empty({1, 2}, DType::float32, test_device());
  source.backend().gather_rows(source.stream(), {source.matrix(), number.view(), to.matrix(), 1});
  std::size_t num_steps = 0;
  while (loader.next()) ++num_steps;  // the thread has waited for many copies since
  EXPECT_EQ(num_steps, 100u);
  expect_error(ErrorCode::Shape, "row 9 does not exist", [&] { source.stream().synchronize(); });
}

}  // namespace
}  // namespace lockstep::data
