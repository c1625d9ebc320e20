// DataLoader: batches on a device, which its own thread prepares ahead.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/data/augmentation.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

// Batches on a device, one step after another.
//
// The rows stay bytes in host memory. A thread works ahead through the epochs: it permutes and cuts
// the rows, and for the CPU writes each batch's row numbers and labels; next() then lets the
// kernels gather those rows as numbers (byte * scale) from where they lie. For a CUDA device the
// thread gathers the bytes itself and sends them ahead; next() converts them when they have
// arrived. Augmented images are written by the thread for either device.
struct Batch {
  Tensor x;                         // [rows, num_features], or rows of options.row_shape; no rows
                                    // on an idle rank; for text: int64 tokens
  Tensor labels;                    // [rows] int64; for text [rows, num_features]
  std::size_t num_global_rows = 0;  // as in BatchShard
  std::size_t global_offset = 0;
};

// Makes the steps of an epoch, e.g. [options](auto epoch) { return exact_batches(options, epoch);
// }. Runs on the loader's thread.
using EpochSampler = std::function<std::vector<BatchShard>(std::uint64_t epoch)>;

// DataLoader(rows, {.batch = 64, .shuffle = true}).
struct BatchOptions {
  // Cut by exact_batches; they count only where no sampler is given.
  int batch = 1;           // rows per step over all ranks; an epoch's last batch may have fewer
  bool drop_last = false;  // leaves out such a smaller batch
  bool shuffle = false;    // draws the order by seed + epoch
  std::uint64_t seed = 0;  // also draws the augmentation
  int rank = 0;            // the rank whose shards these are
  int world_size = 1;

  Device device = default_device();
  DType dtype = DType::float32;    // float32 or float64; ignored for a text
  Shape row_shape = {};            // such as rows.image_shape(); none: its features
  Augmentation augmentation = {};  // of images, drawn by seed, epoch and row; then row_shape is
                                   // [height, width, channels]
};

class DataLoader {
 public:
  // Throws Error{Usage} if there are no rows or no sampler; Error{DType} unless dtype is float32 or
  // float64; Error{Device} if there is no such device; Error{Shape} if features and labels have
  // different numbers of rows, row_shape has another number of features, or the rows to augment are
  // not images.
  DataLoader(std::shared_ptr<const LabelledRows> rows, EpochSampler sampler,
             const BatchOptions& options);
  // Also throws Error{Usage} for a batch or world size below 1, a rank outside the world, and
  // drop_last with fewer rows than a batch.
  DataLoader(const std::shared_ptr<const LabelledRows>& rows, const BatchOptions& options);
  DataLoader(LabelledRows rows, const BatchOptions& options)
      : DataLoader(std::make_shared<const LabelledRows>(std::move(rows)), options) {}
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  // Goes to the first step of an epoch, and drops the rest of the epoch before. Costs nothing if
  // epochs follow each other and are used up, because the thread is already in the new one.
  void start_epoch(std::uint64_t epoch);

  // The next batch, or nullopt at the end of the epoch. The gather is enqueued on the device's
  // compute stream. Before start_epoch: epoch 0.
  // Throws the sampler's exceptions, and Error{Usage} for a row that the data set does not have.
  std::optional<Batch> next();

  // for (const Batch& batch : loader) goes through the batches of an epoch. The first such loop
  // takes epoch 0 or the one that was started, each later loop the next one.
  class Iterator {
   public:
    explicit Iterator(DataLoader& loader) : loader_(&loader), batch_(loader.next()) {}
    const Batch& operator*() const { return *batch_; }
    Iterator& operator++() {
      batch_ = loader_->next();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !batch_; }

   private:
    DataLoader* loader_;
    std::optional<Batch> batch_;
  };
  Iterator begin() {
    if (!at_start_of_epoch_) start_epoch(epoch_ + 1);
    return Iterator(*this);
  }
  std::default_sentinel_t end() const { return std::default_sentinel; }

  // The memory of a device of this type that batches of so many rows take while they wait for their
  // step. On a CPU it is less as long as the thread is not ahead.
  static std::size_t bytes_ahead(const LabelledRows& rows, std::size_t num_rows, DeviceType type);

  // Writes the next batch into the first rows of given tensors, for a step that is captured as a
  // graph: x [rows or more, num_features] or of another row_shape, labels [rows or more].
  // Throws Error{Shape} if the batch has more rows than they do, Error{Device} if they are on
  // another device.
  std::optional<Batch> next_into(const Tensor& x, const Tensor& labels);

 private:
  struct Prepared;
  class Prefetcher;

  std::optional<Prepared> take_prepared();
  void write(const Prepared& prepared, const Tensor& x, const Tensor& labels) const;
  std::unique_ptr<Prefetcher> prefetch_from(std::uint64_t epoch) const;

  std::shared_ptr<const LabelledRows> rows_;
  EpochSampler sampler_;
  BatchOptions options_;
  std::uint64_t epoch_ = 0;
  bool at_start_of_epoch_ = false;  // the prefetcher's next item is the first of epoch_
  bool at_end_of_epoch_ = false;    // nothing is left of epoch_
  std::unique_ptr<Prefetcher> prefetcher_;
};

}  // namespace lockstep::data
