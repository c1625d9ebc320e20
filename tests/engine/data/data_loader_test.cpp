#include "engine/data/data_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "engine/core/error.h"
#include "tests/support/devices.h"
#include "tests/support/expect_error.h"

namespace lockstep::data {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::test_device;
using ::testing::ElementsAre;

// Row i is {10 i, 10 i + 1, 10 i + 2}, its label i % 4; a byte counts a half.
std::shared_ptr<const LabelledRows> make_rows(std::size_t num_rows) {
  auto rows = std::make_shared<LabelledRows>();
  rows->name = "numbers";
  rows->num_features = 3;
  rows->num_classes = 4;
  rows->scale = 0.5f;
  rows->row_shape = {3};
  for (std::size_t i = 0; i < num_rows; ++i) {
    for (std::size_t j = 0; j < 3; ++j) {
      rows->features.push_back(static_cast<std::uint8_t>(10 * i + j));
    }
    rows->labels.push_back(static_cast<std::int64_t>(i % 4));
  }
  return rows;
}

EpochSampler exact(const SamplerOptions& options) {
  return [options](std::uint64_t epoch) { return exact_batches(options, epoch); };
}

// The labels of one epoch, batch by batch.
std::vector<std::vector<std::int64_t>> labels_of_epoch(DataLoader& loader, std::uint64_t epoch) {
  loader.start_epoch(epoch);
  std::vector<std::vector<std::int64_t>> all;
  while (const auto batch = loader.next()) all.push_back(batch->labels.to_vector<std::int64_t>());
  return all;
}

std::vector<std::vector<std::int64_t>> expected_labels(const LabelledRows& rows,
                                                       const std::vector<BatchShard>& shards) {
  std::vector<std::vector<std::int64_t>> all;
  for (const BatchShard& shard : shards) {
    auto& labels = all.emplace_back();
    for (const std::size_t row : shard.rows) labels.push_back(rows.labels[row]);
  }
  return all;
}

TEST(DataLoaderRows, HaveTheShapeThatIsAskedFor) {
  BatchOptions options;
  options.row_shape = {1, 3, 1};
  const auto sampler = exact({.num_samples = 5, .batch_size = 5, .shuffle = Shuffle::off});
  const auto batch = DataLoader(make_rows(5), sampler, options).next();
  EXPECT_EQ(batch->x.shape(), (Shape{5, 1, 3, 1}));
  EXPECT_EQ(batch->x.to_vector<float>()[3], 5);
  options.row_shape = {2, 2, 1};
  testing::expect_error(ErrorCode::Shape,
                        "rows of 'numbers' have 3 features, which make no row of shape [2, 2, 1]",
                        [&] { DataLoader(make_rows(5), sampler, options); });
}

// Tokens 0, 1, 2, ... 99 in windows of 4.
std::shared_ptr<const LabelledRows> make_text() {
  auto rows = std::make_shared<LabelledRows>();
  rows->name = "text";
  rows->num_features = 4;
  rows->num_classes = 100;
  for (std::uint16_t token = 0; token < 100; ++token) rows->tokens.push_back(token);
  return rows;
}

TEST(TextWindows, FollowEachOtherUnlessTheyAreShuffled) {
  DataLoader loader(make_text(), {.batch = 3, .device = test_device()});
  const auto first = loader.next();
  EXPECT_EQ(first->x.dtype(), DType::int64);
  EXPECT_EQ(first->labels.shape(), (Shape{3, 4}));
  EXPECT_THAT(first->x.to_vector<std::int64_t>(),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_THAT(first->labels.to_vector<std::int64_t>(),
              ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12));
  EXPECT_EQ(first->num_global_rows, 3u);
  const std::size_t num_batches = (make_text()->num_rows() + 2) / 3;
  for (std::size_t i = 1; i < num_batches; ++i) EXPECT_TRUE(loader.next().has_value());
  EXPECT_FALSE(loader.next().has_value());
}

TEST(TextWindows, AreTheSameForAnyNumberOfRanks) {
  const auto windows = [](int rank, int world_size) {
    DataLoader loader(make_text(), {.batch = 5,
                                    .shuffle = true,
                                    .seed = 3,
                                    .rank = rank,
                                    .world_size = world_size,
                                    .device = test_device()});
    std::vector<std::vector<std::int64_t>> all;
    while (const auto batch = loader.next()) {
      all.push_back(batch->x.to_vector<std::int64_t>());
      for (std::size_t i = 0; i < all.back().size(); ++i) {
        EXPECT_EQ(batch->labels.to_vector<std::int64_t>()[i], all.back()[i] + 1);
      }
    }
    return all;
  };
  const auto alone = windows(0, 1);
  const auto first = windows(0, 2), second = windows(1, 2);
  for (std::size_t step = 0; step < alone.size(); ++step) {
    auto joined = first[step];
    joined.insert(joined.end(), second[step].begin(), second[step].end());
    EXPECT_EQ(joined, alone[step]) << step;
  }
}

class DataLoaderTypes : public ::testing::TestWithParam<DType> {};

TEST_P(DataLoaderTypes, ScalesBytesAndKeepsTheSmallerLastBatch) {
  DataLoader loader(make_rows(5),
                    exact({.num_samples = 5, .batch_size = 3, .shuffle = Shuffle::off}),
                    {.dtype = GetParam()});
  const auto first = loader.next();
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->x.dtype(), GetParam());
  EXPECT_EQ(first->x.shape(), (Shape{3, 3}));
  EXPECT_THAT(first->x.to_vector<double>(), ElementsAre(0, 0.5, 1, 5, 5.5, 6, 10, 10.5, 11));
  EXPECT_EQ(first->labels.shape(), Shape{3});
  EXPECT_THAT(first->labels.to_vector<std::int64_t>(), ElementsAre(0, 1, 2));
  EXPECT_EQ(first->num_global_rows, 3u);
  const auto second = loader.next();
  ASSERT_TRUE(second.has_value());
  EXPECT_THAT(second->x.to_vector<double>(), ElementsAre(15, 15.5, 16, 20, 20.5, 21));
  EXPECT_EQ(second->num_global_rows, 2u);
  EXPECT_FALSE(loader.next().has_value());
  EXPECT_FALSE(loader.next().has_value());
}

INSTANTIATE_TEST_SUITE_P(Floating, DataLoaderTypes,
                         ::testing::Values(DType::float32, DType::float64),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST(DataLoader, GoesToAnyEpochFromAnywhere) {
  const auto rows = make_rows(25);
  const SamplerOptions options{.num_samples = 25, .batch_size = 4, .seed = 9};
  DataLoader loader(rows, exact(options), {});
  for (const std::uint64_t epoch : {7u, 7u, 0u, 1u, 3u}) {
    EXPECT_EQ(labels_of_epoch(loader, epoch), expected_labels(*rows, exact_batches(options, epoch)))
        << epoch;
  }
  loader.start_epoch(4);
  loader.next();  // and the rest of epoch 4 is given up
  EXPECT_EQ(labels_of_epoch(loader, 4), expected_labels(*rows, exact_batches(options, 4)));
  loader.start_epoch(5);
  EXPECT_EQ(labels_of_epoch(loader, 6), expected_labels(*rows, exact_batches(options, 6)));
}

TEST(DataLoader, DropLastLeavesOutTheSmallerBatch) {
  DataLoader loader(make_rows(7), {.batch = 3, .drop_last = true});
  EXPECT_EQ(labels_of_epoch(loader, 0),
            (std::vector<std::vector<std::int64_t>>{{0, 1, 2}, {3, 0, 1}}));
  expect_error(ErrorCode::Usage, "drop_last leaves no batch: there are 2 rows",
               [] { DataLoader(make_rows(2), {.batch = 3, .drop_last = true}); });
}

TEST(DataLoader, RefusesWhatItCannotUse) {
  const SamplerOptions five{.num_samples = 5, .batch_size = 5};
  const EpochSampler fails = [](std::uint64_t) -> std::vector<BatchShard> {
    fail(ErrorCode::Usage, "sampler", "no such rank");
  };
  auto cut = std::make_shared<LabelledRows>(*make_rows(5));
  cut->features.pop_back();
  const std::tuple<ErrorCode, const char*, std::shared_ptr<const LabelledRows>, EpochSampler,
                   BatchOptions>
      mistakes[] = {
          {ErrorCode::Usage, "no such rank", make_rows(5), fails, {}},
          {ErrorCode::Usage, "row 4; 'numbers' has 4 rows", make_rows(4), exact(five), {}},
          {ErrorCode::Usage, "there is no data set", {}, exact(five), {}},
          {ErrorCode::Usage, "there is no sampler", make_rows(5), {}, {}},
          {ErrorCode::Shape,
           "5 labels and rows of 3 features, so 15 bytes of features, found 14",
           cut,
           exact(five),
           {}},
          {ErrorCode::DType, "found int64", make_rows(5), exact(five), {.dtype = DType::int64}},
          {ErrorCode::Device,
           "cpu:1000 does not exist",
           make_rows(5),
           exact(five),
           {.device = test_device(1000)}},
      };
  for (const auto& [code, words, rows, sampler, options] : mistakes) {
    expect_error(code, words, [&, &rows = rows, &sampler = sampler, &options = options] {
      DataLoader(rows, sampler, options).next();
    });
  }
}

TEST(DataLoader, LoadsIntoTensorsOfItsDevice) {
  DataLoader loader(make_rows(5), exact({.num_samples = 5, .batch_size = 5}),
                    {.device = test_device()});
  const Device other = test_device(1);
  const Tensor x = Tensor::zeros({5, 3}, DType::float32, test_device());
  const Tensor labels = Tensor::zeros({5}, DType::int64, test_device());
  expect_error(ErrorCode::Device, "the tensor for one is on cpu:1",
               [&] { loader.next_into(x.to(other), labels); });
  expect_error(ErrorCode::Device, "the tensor for one is on cpu:1",
               [&] { loader.next_into(x, labels.to(other)); });
  ASSERT_TRUE(loader.next_into(x, labels).has_value());
  EXPECT_EQ(x.version(), 2u);
  EXPECT_GE(labels.version(), 2u);
}

// The labels of the batches that one loop over the loader sees.
std::vector<std::vector<std::int64_t>> loop(DataLoader& loader) {
  std::vector<std::vector<std::int64_t>> result;
  for (const Batch& batch : loader) result.push_back(batch.labels.to_vector<std::int64_t>());
  return result;
}

TEST(DataLoader, EachLoopIsTheNextEpoch) {
  const BatchOptions options{.batch = 3, .shuffle = true, .seed = 1, .device = test_device()};
  DataLoader loader(make_rows(12), options), other(make_rows(12), options);
  const auto first = loop(loader), second = loop(loader);
  EXPECT_NE(first, second);
  other.start_epoch(1);
  EXPECT_EQ(loop(other), second);
  other.start_epoch(0);
  EXPECT_EQ(loop(other), first);
  for (const Batch& batch : other) {
    EXPECT_EQ(batch.x.size(0), 3u);
    break;  // the rest of epoch 1 is left out
  }
  EXPECT_EQ(loop(other), loop(loader));
}

}  // namespace
}  // namespace lockstep::data
