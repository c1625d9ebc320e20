#include "engine/data/data_loader.h"

#include <algorithm>
#include <utility>

#include "engine/core/checked.h"
#include "engine/core/error.h"
#include "engine/data/staging_ring.h"

namespace lockstep::data {

// What the thread makes: a batch without its pixels, or the end of an epoch.
struct DataLoader::Prepared {
  bool is_end_of_epoch = false;
  std::size_t num_rows = 0;
  Tensor row_numbers;                 // [rows] int64, in host memory; undefined on CUDA
  Tensor labels;                      // likewise
  std::shared_ptr<StagingRing> ring;  // CUDA only
  StagingSlot* slot = nullptr;        // of the ring
  std::size_t num_global_rows = 0;
  std::size_t global_offset = 0;
};

namespace {

constexpr std::string_view kOperation = "data_loader";

// Runs through the steps of one epoch after the other, without end.
class EpochCursor {
 public:
  EpochCursor(const EpochSampler& sampler, std::uint64_t epoch)
      : sampler_(sampler), epoch_(epoch) {}

  // The next step, or nullptr once at the end of every epoch. Valid until the next call.
  const BatchShard* next() {
    if (step_ == 0) shards_ = sampler_(epoch_);
    if (step_ < shards_.size()) return &shards_[step_++];
    step_ = 0;
    ++epoch_;
    return nullptr;
  }

 private:
  EpochSampler sampler_;
  std::uint64_t epoch_;
  std::size_t step_ = 0;
  std::vector<BatchShard> shards_;
};

}  // namespace

DataLoader::DataLoader(std::shared_ptr<const LabelledRows> rows, EpochSampler sampler,
                       const DataLoaderOptions& options)
    : rows_(std::move(rows)), sampler_(std::move(sampler)), options_(options) {
  require(options.num_prefetched >= 1, ErrorCode::Usage, kOperation,
          "expected at least 1 batch to prefetch, found 0");
  require(options.dtype == DType::float32 || options.dtype == DType::float64, ErrorCode::DType,
          kOperation, "expected float32 or float64, found {}", to_string(options.dtype));
  require(rows_ != nullptr, ErrorCode::Usage, kOperation, "there is no data set to load from");
  require(sampler_ != nullptr, ErrorCode::Usage, kOperation,
          "there is no sampler to say which rows");
  const std::size_t num_bytes = checked_product(kOperation, rows_->num_rows(), rows_->num_features);
  require(rows_->features.size() == num_bytes, ErrorCode::Shape, kOperation,
          "'{}' has {} labels and rows of {} features, so {} bytes of features, found {}",
          rows_->name, rows_->num_rows(), rows_->num_features, num_bytes, rows_->features.size());
  runtime::logical_device(options.device);  // fails here rather than on the thread
  prefetcher_ = prefetch_from(0);
  at_start_of_epoch_ = true;
}

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
  Prepared prepared = prefetcher_->next().value();
  at_start_of_epoch_ = false;
  at_end_of_epoch_ = prepared.is_end_of_epoch;
  if (at_end_of_epoch_) return std::nullopt;
  return prepared;
}

std::optional<Batch> DataLoader::next() {
  const std::optional<Prepared> prepared = take_prepared();
  if (!prepared) return std::nullopt;
  const Tensor x =
      Tensor::empty({prepared->num_rows, rows_->num_features}, options_.dtype, options_.device);
  const Tensor labels = Tensor::empty({prepared->num_rows}, DType::int64, options_.device);
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
  const ConstMatrixView source = matrix_view(static_cast<const void*>(rows_->features.data()),
                                             DType::uint8, rows_->num_rows(), rows_->num_features);
  x.backend().gather_rows(x.stream(), source, prepared.row_numbers.view(), x.matrix(),
                          rows_->scale);
  labels.copy_from(prepared.labels);
}

std::unique_ptr<Prefetcher<DataLoader::Prepared>> DataLoader::prefetch_from(
    std::uint64_t epoch) const {
  const bool is_staged = options_.device.type == DeviceType::cuda;
  const std::size_t capacity =
      is_staged ? std::min(options_.num_prefetched, kMaxStaged) : options_.num_prefetched;
  // One slot is filled and one is taken while the others wait.
  const auto ring = is_staged ? std::make_shared<StagingRing>(rows_, options_.device, capacity + 2)
                              : std::shared_ptr<StagingRing>();
  const auto prepare = [rows = rows_, device = options_.device, ring,
                        cursor = EpochCursor(sampler_, epoch)]() mutable {
    Prepared prepared;
    const BatchShard* shard = cursor.next();
    prepared.is_end_of_epoch = shard == nullptr;
    if (shard == nullptr) return std::optional(std::move(prepared));
    for (const std::size_t row : shard->rows) {
      require(row < rows->num_rows(), ErrorCode::Usage, kOperation,
              "the sampler asks for row {}; '{}' has {} rows", row, rows->name, rows->num_rows());
    }
    prepared.num_rows = shard->rows.size();
    prepared.num_global_rows = shard->num_global_rows;
    prepared.global_offset = shard->global_offset;
    if (ring) {
      prepared.ring = ring;
      prepared.slot = &ring->fill(shard->rows);
      return std::optional(std::move(prepared));
    }
    prepared.row_numbers = Tensor::empty({shard->rows.size()}, DType::int64, device);
    prepared.labels = Tensor::empty({shard->rows.size()}, DType::int64, device);
    const std::span<std::int64_t> row_numbers = prepared.row_numbers.host<std::int64_t>();
    const std::span<std::int64_t> labels = prepared.labels.host<std::int64_t>();
    for (std::size_t i = 0; i < shard->rows.size(); ++i) {
      row_numbers[i] = static_cast<std::int64_t>(shard->rows[i]);
      labels[i] = rows->labels[shard->rows[i]];
    }
    return std::optional(std::move(prepared));
  };
  return std::make_unique<Prefetcher<Prepared>>(prepare, capacity);
}

}  // namespace lockstep::data
