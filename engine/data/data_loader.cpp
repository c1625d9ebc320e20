#include "engine/data/data_loader.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/shape.h"
#include "engine/core/thread_context.h"
#include "engine/data/staging_ring.h"
#include "engine/runtime/memory_pool.h"
#include "kernels/calls.h"

namespace lockstep::data {

namespace {

constexpr std::string_view kOperation = "data_loader";

// Batches that wait, at most. Those for a CUDA device hold pixels.
constexpr std::size_t kNumPrefetched = 32;
constexpr std::size_t kNumStaged = 8;
constexpr std::size_t kNumInUse = 2;  // staged ones besides: one is filled, one is taken

Shape label_shape(const LabelledRows& rows, std::size_t num_rows) {
  return rows.is_text() ? Shape{num_rows, rows.labels_per_row()} : Shape{num_rows};
}

}  // namespace

// A batch as the thread prepares it, or the end of an epoch.
struct DataLoader::Prepared {
  bool is_end_of_epoch = false;
  std::size_t num_rows = 0;
  // For the CPU: labels, and the numbers of the rows in the data set; or the rows themselves, as
  // LabelledRows::write_row() writes them, if they are a text's or augmented.
  Tensor labels;
  Tensor row_numbers;
  Tensor features;
  std::shared_ptr<StagingRing> ring;  // CUDA only
  StagingSlot* slot = nullptr;        // place in the ring
  std::size_t num_global_rows = 0;
  std::size_t global_offset = 0;
};

// A thread that prepares batches ahead of the thread that uses them.
//
// Threading:  produce() runs on the prefetcher's own thread, with the ThreadContext of the thread
//             that made the prefetcher; next() is for one consumer thread.
// Bounded:    at most `capacity` items wait. The thread sleeps while they do, and is woken when
//             half of them are used: waking a thread costs microseconds, and a small step has few.
// Errors:     an exception of produce() reaches the consumer after the items made before it, and
//             again at every further call.
// Shutdown:   the destructor waits for a running produce(), and drops its item.
class DataLoader::Prefetcher {
 public:
  Prefetcher(std::function<Prepared()> produce, std::size_t capacity)
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

  Prepared next() {
    std::unique_lock lock(mutex_);
    consumer_may_go_on_.wait(lock, [&] { return !items_.empty() || error_; });
    if (items_.empty()) std::rethrow_exception(error_);
    Prepared item = std::move(items_.front());
    items_.pop_front();
    const bool wake = items_.size() == capacity_ / 2;
    lock.unlock();
    if (wake) producer_may_go_on_.notify_one();
    return item;
  }

 private:
  void run(const ThreadContext& context) {
    const ThreadContextScope scope(context);
    try {
      while (put(produce_())) {
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      error_ = std::current_exception();
      consumer_may_go_on_.notify_one();
    }
  }

  // Returns false if the prefetcher is being destroyed.
  bool put(Prepared item) {
    std::unique_lock lock(mutex_);
    items_.push_back(std::move(item));
    consumer_may_go_on_.notify_one();
    if (items_.size() == capacity_) {
      producer_may_go_on_.wait(lock, [&] { return stopping_ || items_.size() <= capacity_ / 2; });
    }
    return !stopping_;
  }

  std::function<Prepared()> produce_;
  const std::size_t capacity_;
  std::mutex mutex_;
  std::condition_variable consumer_may_go_on_;
  std::condition_variable producer_may_go_on_;
  std::deque<Prepared> items_;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the members above
};

DataLoader::DataLoader(std::shared_ptr<const LabelledRows> rows, EpochSampler sampler,
                       const BatchOptions& options)
    : rows_(std::move(rows)), sampler_(std::move(sampler)), options_(options) {
  require(options.dtype == DType::float32 || options.dtype == DType::float64, ErrorCode::DType,
          kOperation, "expected float32 or float64, found {}", to_string(options.dtype));
  require(rows_ != nullptr, ErrorCode::Usage, kOperation, "there is no data set to load from");
  require(sampler_ != nullptr, ErrorCode::Usage, kOperation,
          "there is no sampler to say which rows");
  const std::size_t num_bytes =
      rows_->is_text() ? 0 : checked_product(kOperation, rows_->num_rows(), rows_->num_features);
  if (rows_->is_text()) options_.dtype = DType::int64;
  require(rows_->features.size() == num_bytes, ErrorCode::Shape, kOperation,
          "'{}' has {} labels and rows of {} features, so {} bytes of features, found {}",
          rows_->name, rows_->num_rows(), rows_->num_features, num_bytes, rows_->features.size());
  if (options_.row_shape.num_dims() == 0) options_.row_shape = {rows_->num_features};
  require(options_.row_shape.num_elements() == rows_->num_features, ErrorCode::Shape, kOperation,
          "rows of '{}' have {} features, which make no row of shape {}", rows_->name,
          rows_->num_features, to_string(options_.row_shape));
  require(options_.augmentation.is_none() || options_.row_shape.num_dims() == 3, ErrorCode::Shape,
          kOperation,
          "only images are cropped and flipped, and rows of '{}' have the shape {}; set row_shape "
          "to [height, width, channels]",
          rows_->name, to_string(options_.row_shape));
  runtime::logical_device(options.device);  // throws here rather than on the thread
  prefetcher_ = prefetch_from(0);
  at_start_of_epoch_ = true;
}

namespace {

EpochSampler exact_sampler(const LabelledRows* rows, const BatchOptions& options) {
  require(options.batch >= 1 && options.world_size >= 1 && 0 <= options.rank &&
              options.rank < options.world_size,
          ErrorCode::Usage, kOperation,
          "expected a batch of at least 1 row and one of world_size ranks, found batch {}, rank {} "
          "of {}",
          options.batch, options.rank, options.world_size);
  SamplerOptions sampling;
  if (rows != nullptr) {
    sampling.num_samples = rows->num_rows();
    sampling.windows = rows->windows();
  }
  sampling.batch_size = static_cast<std::size_t>(options.batch);
  sampling.world_size = static_cast<std::size_t>(options.world_size);
  sampling.rank = static_cast<std::size_t>(options.rank);
  sampling.seed = options.seed;
  sampling.shuffle = options.shuffle ? Shuffle::on : Shuffle::off;
  require(!options.drop_last || sampling.num_samples >= sampling.batch_size, ErrorCode::Usage,
          kOperation, "drop_last leaves no batch: there are {} rows, fewer than a batch of {}",
          sampling.num_samples, sampling.batch_size);
  return [sampling, drop_last = options.drop_last](std::uint64_t epoch) {
    std::vector<BatchShard> batches = exact_batches(sampling, epoch);
    if (drop_last && batches.back().num_global_rows < sampling.batch_size) batches.pop_back();
    return batches;
  };
}

}  // namespace

DataLoader::DataLoader(const std::shared_ptr<const LabelledRows>& rows, const BatchOptions& options)
    : DataLoader(rows, exact_sampler(rows.get(), options), options) {}

DataLoader::~DataLoader() = default;

void DataLoader::start_epoch(std::uint64_t epoch) {
  const bool thread_is_there =
      at_end_of_epoch_ ? epoch == epoch_ + 1 : at_start_of_epoch_ && epoch == epoch_;
  if (!thread_is_there) prefetcher_ = prefetch_from(epoch);
  epoch_ = epoch;
  at_start_of_epoch_ = true;
  at_end_of_epoch_ = false;
}

std::optional<DataLoader::Prepared> DataLoader::take_prepared() {
  if (at_end_of_epoch_) return std::nullopt;
  Prepared prepared = prefetcher_->next();
  at_start_of_epoch_ = false;
  at_end_of_epoch_ = prepared.is_end_of_epoch;
  thread_context().first_row = prepared.global_offset;  // 0 at the end
  if (at_end_of_epoch_) return std::nullopt;
  return prepared;
}

std::optional<Batch> DataLoader::next() {
  const std::optional<Prepared> prepared = take_prepared();
  if (!prepared) return std::nullopt;
  std::vector<std::size_t> sizes{prepared->num_rows};
  for (const std::size_t size : options_.row_shape.sizes()) sizes.push_back(size);
  const Tensor x =
      Tensor::empty(Shape(std::span<const std::size_t>(sizes)), options_.dtype, options_.device);
  const Tensor labels =
      Tensor::empty(label_shape(*rows_, prepared->num_rows), DType::int64, options_.device);
  write(*prepared, x, labels);
  return Batch{x, labels, prepared->num_global_rows, prepared->global_offset};
}

std::optional<Batch> DataLoader::next_into(const Tensor& x, const Tensor& labels) {
  for (const Tensor* tensor : {&x, &labels}) {
    require(tensor->device() == options_.device, ErrorCode::Device, kOperation,
            "loads batches to {}, and the tensor for one is on {}", to_string(options_.device),
            to_string(tensor->device()));
  }
  const std::optional<Prepared> prepared = take_prepared();
  if (!prepared) return std::nullopt;
  require(prepared->num_rows <= x.size(0) && prepared->num_rows <= labels.size(0), ErrorCode::Shape,
          kOperation, "the batch has {} rows, and there is room for {}", prepared->num_rows,
          std::min(x.size(0), labels.size(0)));
  require(x.num_elements() == x.size(0) * rows_->num_features && x.dtype() == options_.dtype &&
              labels.shape() == label_shape(*rows_, labels.size(0)) &&
              labels.dtype() == DType::int64,
          ErrorCode::Shape, kOperation, "expected rows of {} features in {} and int64 labels",
          rows_->num_features, to_string(options_.dtype));
  const Tensor x_rows = x.rows(0, prepared->num_rows);
  const Tensor label_rows = labels.rows(0, prepared->num_rows);
  write(*prepared, x_rows, label_rows);
  return Batch{x_rows, label_rows, prepared->num_global_rows, prepared->global_offset};
}

void DataLoader::write(const Prepared& prepared, const Tensor& x, const Tensor& labels) const {
  x.bump_version();
  labels.bump_version();
  if (prepared.slot != nullptr) {
    prepared.ring->take(*prepared.slot, x, labels);
    return;
  }
  labels.copy_from(prepared.labels);
  if (rows_->is_text()) return copy_tokens(prepared.features, x);
  const ConstMatrixView source =
      prepared.features.defined()
          ? ConstMatrixView(prepared.features.matrix())
          : matrix_view(static_cast<const void*>(rows_->features.data()), DType::uint8,
                        rows_->num_rows(), rows_->num_features);
  x.backend().gather_rows(x.stream(),
                          {source, prepared.row_numbers.view(), x.matrix(), rows_->scale});
}

std::size_t DataLoader::bytes_ahead(const LabelledRows& rows, std::size_t num_rows,
                                    DeviceType type) {
  const std::size_t labels =
      runtime::block_size(num_rows * rows.labels_per_row() * sizeof(std::int64_t));
  const std::size_t row_numbers = runtime::block_size(num_rows * sizeof(std::int64_t));
  const std::size_t bytes = runtime::block_size(num_rows * rows.row_bytes());
  if (type == DeviceType::cuda) return (kNumStaged + kNumInUse) * (bytes + labels) + row_numbers;
  return kNumPrefetched * (labels + row_numbers + (rows.is_text() ? bytes : 0));
}

std::unique_ptr<DataLoader::Prefetcher> DataLoader::prefetch_from(std::uint64_t epoch) const {
  const bool is_staged = options_.device.type == DeviceType::cuda;
  const std::size_t capacity = is_staged ? kNumStaged : kNumPrefetched;
  const auto ring =
      is_staged ? std::make_shared<StagingRing>(rows_, options_.device, kNumStaged + kNumInUse)
                : std::shared_ptr<StagingRing>();
  // Goes through the steps of one epoch after another, endlessly.
  const auto prepare = [rows = rows_, sampler = sampler_, options = options_, ring, epoch,
                        step = std::size_t{0}, shards = std::vector<BatchShard>()]() mutable {
    Prepared prepared;
    if (step == 0) shards = sampler(epoch);
    prepared.is_end_of_epoch = step == shards.size();
    if (prepared.is_end_of_epoch) {
      step = 0;
      ++epoch;
      return prepared;
    }
    const BatchShard& shard = shards[step++];
    for (const std::size_t row : shard.rows) {
      require(rows->has_row(row), ErrorCode::Usage, kOperation,
              "the sampler asks for row {}; '{}' has {} rows", row, rows->name, rows->num_rows());
    }
    const std::size_t num_rows = prepared.num_rows = shard.rows.size();
    prepared.num_global_rows = shard.num_global_rows;
    prepared.global_offset = shard.global_offset;
    const bool is_augmented = !options.augmentation.is_none();
    const auto write_row = [&](std::size_t row, void* bytes, std::int64_t* labels_of_row) {
      if (!is_augmented) return rows->write_row(row, bytes, labels_of_row);
      const AugmentationDraw draw =
          draw_augmentation(options.augmentation, options.seed, epoch, row);
      augment(draw, options.row_shape, rows->row(row),
              {static_cast<std::uint8_t*>(bytes), rows->num_features});
      *labels_of_row = rows->labels[row];
    };
    if (ring) {
      prepared.ring = ring;
      prepared.slot = &ring->fill(shard.rows, write_row);
      return prepared;
    }
    prepared.labels = Tensor::empty(label_shape(*rows, num_rows), DType::int64, options.device);
    prepared.row_numbers = Tensor::empty({num_rows}, DType::int64, options.device);
    const std::span<std::int64_t> labels = prepared.labels.host<std::int64_t>();
    const std::span<std::int64_t> numbers = prepared.row_numbers.host<std::int64_t>();
    const bool is_written = is_augmented || rows->is_text();
    if (is_written) {
      prepared.features =
          Tensor::empty({num_rows, rows->row_bytes()}, DType::uint8, options.device);
    }
    for (std::size_t i = 0; i < num_rows; ++i) {
      numbers[i] = static_cast<std::int64_t>(is_written ? i : shard.rows[i]);
      if (is_written) {
        write_row(shard.rows[i], prepared.features.rows(i, i + 1).raw(),
                  labels.data() + i * rows->labels_per_row());
      } else {
        labels[i] = rows->labels[shard.rows[i]];
      }
    }
    return prepared;
  };
  return std::make_unique<Prefetcher>(prepare, capacity);
}

}  // namespace lockstep::data
