// Batches on a device, one step after another.
//
// The rows stay bytes in host memory. A thread looks ahead through the epochs: it permutes, cuts,
// and for the CPU writes each batch's row numbers and labels; next() then lets the kernels gather
// those rows as numbers (byte * scale) from where they lie. For a CUDA device the thread gathers
// the bytes itself and sends them ahead (staging_ring.h); next() converts what has arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/prefetcher.h"
#include "engine/data/sampler.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

struct Batch {
  Tensor x;                         // [rows, num_features]; rows is 0 on a rank that idles
  Tensor labels;                    // [rows] int64
  std::size_t num_global_rows = 0;  // as in BatchShard
  std::size_t global_offset = 0;
};

// The steps of an epoch, e.g. [options](auto epoch) { return exact_batches(options, epoch); }.
// Runs on the loader's thread.
using EpochSampler = std::function<std::vector<BatchShard>(std::uint64_t epoch)>;

struct DataLoaderOptions {
  Device device = {};
  DType dtype = DType::float32;     // of x: float32 or float64
  std::size_t num_prefetched = 32;  // batches that wait, at most; on CUDA kMaxStaged of them
};

// Of the batches that wait for a CUDA device, which hold pixels.
inline constexpr std::size_t kMaxStaged = 8;

class DataLoader {
 public:
  // Throws Error{Usage} when num_prefetched is 0 or there are no rows or no sampler, Error{DType}
  // unless dtype is float32 or float64, Error{Device} when there is no such device, Error{Shape}
  // when features and labels are not of equally many rows.
  DataLoader(std::shared_ptr<const LabelledRows> rows, EpochSampler sampler,
             const DataLoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Goes to the first step of an epoch, whatever was left of the one before. Costs nothing when
  // epochs follow each other and are used up: the thread is in the new one already.
  void start_epoch(std::uint64_t epoch);

  // The next batch, or nothing at the end of the epoch. The gather is enqueued on the device's
  // compute stream. Before start_epoch: epoch 0.
  // Throws what the sampler threw, and Error{Usage} for a row that the data set does not have.
  std::optional<Batch> next();

  // The same into the first rows of tensors that stay where they are, for a step that is captured
  // as a graph: x [rows or more, num_features], labels [rows or more]. Throws Error{Shape} when the
  // batch has more rows than they, Error{Device} when they are on another device.
  std::optional<Batch> next_into(const Tensor& x, const Tensor& labels);

 private:
  struct Prepared;

  std::optional<Prepared> take_prepared();
  void write(const Prepared& prepared, const Tensor& x, const Tensor& labels) const;
  std::unique_ptr<Prefetcher<Prepared>> prefetch_from(std::uint64_t epoch) const;

  std::shared_ptr<const LabelledRows> rows_;
  EpochSampler sampler_;
  DataLoaderOptions options_;
  std::uint64_t epoch_ = 0;
  bool at_start_of_epoch_ = false;  // the prefetcher's next item is the first of epoch_
  bool at_end_of_epoch_ = false;    // nothing is left of epoch_
  std::unique_ptr<Prefetcher<Prepared>> prefetcher_;
};

}  // namespace lockstep::data
