// DataLoader: batches on a device, which its own thread prepares ahead.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "engine/core/device.h"
#include "engine/core/dtype.h"
#include "engine/core/thread_context.h"
#include "engine/data/augmentation.h"
#include "engine/data/labelled_rows.h"
#include "engine/data/sampler.h"
#include "engine/runtime/threads.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

// A thread that produces items ahead of the thread that uses them.
//
// Threading:  produce() runs on the prefetcher's own thread, with the ThreadContext of the thread
//             that made the prefetcher; next() is for one consumer thread.
// Bounded:    at most `capacity` items wait. The thread sleeps while they do, and is woken when
//             half of them are used: waking a thread costs microseconds, and a small step has few.
// Errors:     exceptions of produce() reach the consumer, after the items made before them.
// Shutdown:   the destructor waits for a running produce(), and drops its item.
template <typename T>
class Prefetcher {
 public:
  // Makes the next item; nullopt means that there are no more, and ends the thread.
  using Produce = std::function<std::optional<T>()>;

  // REQUIRES: capacity >= 1.
  Prefetcher(Produce produce, std::size_t capacity)
      : produce_(std::move(produce)),
        capacity_(capacity),
        thread_([this, context = thread_context()] { run(context); }) {}

  ~Prefetcher() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    producer_may_go_on_.notify_one();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next item, as soon as there is one; nullopt after the last. Throws produce()'s exception,
  // again at every further call.
  std::optional<T> next() {
    std::unique_lock lock(mutex_);
    consumer_may_go_on_.wait(lock, [&] { return !items_.empty() || finished_; });
    if (items_.empty()) {
      if (error_) std::rethrow_exception(error_);
      return std::nullopt;
    }
    std::optional<T> item = std::move(items_.front());
    items_.pop_front();
    const bool wake = items_.size() == capacity_ / 2;
    lock.unlock();
    if (wake) producer_may_go_on_.notify_one();
    return item;
  }

 private:
  void run(const ThreadContext& context) {
    const ThreadContextScope scope(context);
    std::exception_ptr error;
    try {
      while (std::optional<T> item = produce_()) {
        if (!put(std::move(*item))) return;
      }
    } catch (...) {
      error = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      error_ = error;
      finished_ = true;
    }
    consumer_may_go_on_.notify_one();
  }

  // Returns false if the prefetcher is being destroyed.
  bool put(T item) {
    std::unique_lock lock(mutex_);
    items_.push_back(std::move(item));
    consumer_may_go_on_.notify_one();
    if (items_.size() == capacity_) {
      producer_may_go_on_.wait(lock, [&] { return stopping_ || items_.size() <= capacity_ / 2; });
    }
    return !stopping_;
  }

  Produce produce_;
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable consumer_may_go_on_;
  std::condition_variable producer_may_go_on_;
  std::deque<T> items_;
  bool finished_ = false;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the members above
};

// Batches on their way from host memory to a CUDA device, while the device computes on earlier
// ones.
//
//   rows in host memory ─gather─> pinned slot ─copy stream─> device slot ─compute stream─> batch
//
// A loader's thread fills slots one after the other; the consumer takes them in that order. Slots
// are used in turn, so copies are ordered by events alone and memory is allocated once.

// Rows of bytes and their labels in one slot.
struct StagingSlot {
  Tensor pinned_features;  // uint8 [capacity, bytes of a row]
  Tensor pinned_labels;    // int64 [capacity * labels of a row]
  Tensor features;         // on the device, of the same sizes
  Tensor labels;
  std::size_t num_rows = 0;                  // filled in
  std::shared_ptr<runtime::Event> uploaded;  // on the copy stream
  std::shared_ptr<runtime::Event> consumed;  // on the compute stream; nullptr: not yet
};

class StagingRing {
 public:
  using WriteRow = std::function<void(std::size_t row, void* bytes, std::int64_t* labels_of_row)>;

  // Throws Error{Device} unless the device is a CUDA device.
  StagingRing(std::shared_ptr<const LabelledRows> rows, Device device, std::size_t num_slots);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // For the loader's thread: writes the rows into the next slot and starts its copy to the device.
  // REQUIRES: every row exists; all slots older than the last num_slots - 1 that were given out
  // have been taken. write_row may run on several threads at once.
  StagingSlot& fill(std::span<const std::size_t> rows, const WriteRow& write_row);

  // For the consumer: x[r] = scale * row r as numbers, y[r] = label r; enqueued on the compute
  // stream.
  // x: float32 or float64 [num_rows, num_features], y: int64 [num_rows], both on the device; for a
  // text, int64 [num_rows, num_features] for both.
  void take(StagingSlot& slot, const Tensor& x, const Tensor& y);

 private:
  void reserve(StagingSlot& slot, std::size_t num_rows);

  std::shared_ptr<const LabelledRows> rows_;
  runtime::LogicalDevice& device_;
  runtime::ThreadPool threads_;
  std::vector<StagingSlot> slots_;
  std::size_t next_slot_ = 0;
  Tensor row_numbers_;  // int64 0, 1, 2, ... on the device: the consumer's gather takes every row
};

// Batches on a device, one step after another.
//
// The rows stay bytes in host memory. A thread works ahead through the epochs: it permutes and cuts
// the rows, and for the CPU writes each batch's row numbers and labels; next() then lets the
// kernels gather those rows as numbers (byte * scale) from where they lie. For a CUDA device the
// thread gathers the bytes itself and sends them ahead; next() converts them when they have
// arrived. Augmented images are written by the thread for either device.
struct Batch {
  Tensor x;                         // [rows, num_features], or rows of options.row_shape; rows
                                    // is 0 on a rank that idles. Of a text int64 tokens
  Tensor labels;                    // [rows] int64; of a text [rows, num_features]
  std::size_t num_global_rows = 0;  // as in BatchShard
  std::size_t global_offset = 0;
};

// Makes the steps of an epoch, e.g. [options](auto epoch) { return exact_batches(options, epoch);
// }. Runs on the loader's thread.
using EpochSampler = std::function<std::vector<BatchShard>(std::uint64_t epoch)>;

struct DataLoaderOptions {
  Device device = default_device();
  DType dtype = DType::float32;     // of x: float32 or float64; ignored for a text
  std::size_t num_prefetched = 32;  // batches that wait, at most; on CUDA kMaxStaged of them
  Shape row_shape = {};             // of a row of x, such as rows.image_shape(); none: its features
  Augmentation augmentation = {};   // of images: row_shape is [height, width, channels]
  std::uint64_t seed = 0;           // of the augmentation
};

// The options for batches that exact_batches cuts: DataLoader(rows, {.batch = 64, .shuffle =
// true}).
struct BatchOptions {
  int batch = 1;         // rows per step over all ranks; an epoch's last batch may have fewer
  bool shuffle = false;  // by seed + epoch
  std::uint64_t seed = 0;
  int rank = 0;  // of world_size ranks: its shard of each batch
  int world_size = 1;
  Device device = default_device();
  DType dtype = DType::float32;
  Shape row_shape = {};            // as in DataLoaderOptions
  Augmentation augmentation = {};  // by seed, epoch and row
};

// Batches that wait for a CUDA device at most; they hold pixels.
inline constexpr std::size_t kMaxStaged = 8;

class DataLoader {
 public:
  // Throws Error{Usage} if num_prefetched is 0 or there are no rows or no sampler; Error{DType}
  // unless dtype is float32 or float64; Error{Device} if there is no such device; Error{Shape} if
  // features and labels have different numbers of rows, row_shape has another number of features,
  // or the rows to augment are not images.
  DataLoader(std::shared_ptr<const LabelledRows> rows, EpochSampler sampler,
             const DataLoaderOptions& options);
  // Also throws Error{Usage} for a batch or world size below 1 and a rank outside the world.
  DataLoader(std::shared_ptr<const LabelledRows> rows, const BatchOptions& options);
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

  // Writes the next batch into the first rows of given tensors, for a step that is captured as a
  // graph: x [rows or more, num_features] or of another row_shape, labels [rows or more].
  // Throws Error{Shape} if the batch has more rows than they do, Error{Device} if they are on
  // another device.
  std::optional<Batch> next_into(const Tensor& x, const Tensor& labels);

 private:
  struct Prepared;

  std::optional<Prepared> take_prepared();
  Shape label_shape(std::size_t num_rows) const;
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
