#include "engine/data/data_loader.h"

#include <utility>

#include "engine/core/error.h"

namespace lockstep::data {

// What the thread makes: a batch without its pixels, or the end of an epoch.
struct DataLoader::Prepared {
  bool is_end_of_epoch = false;
  Tensor row_numbers;  // [rows] int64, in host memory
  Tensor labels;       // likewise
  std::size_t num_global_rows = 0;
  std::size_t global_offset = 0;
};

namespace {

constexpr std::string_view kOperation = "data_loader";

// Where the host writes what the device reads: on a CPU device, its own memory.
Device host_side_of(Device device) {
  return device.type == DeviceType::cpu ? device : Device{};
}

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
  runtime::logical_device(options.device);  // fails here rather than on the thread
  if (options.device.type != DeviceType::cpu) {
    device_features_ = Tensor::from(std::span<const std::uint8_t>(rows_->features),
                                    {rows_->num_rows(), rows_->num_features}, options.device);
  }
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

std::optional<Batch> DataLoader::next() {
  if (at_end_of_epoch_) return std::nullopt;
  const Prepared prepared = prefetcher_->next().value();
  at_start_of_epoch_ = false;
  at_end_of_epoch_ = prepared.is_end_of_epoch;
  if (at_end_of_epoch_) return std::nullopt;
  return Batch{gather(prepared.row_numbers), prepared.labels.to(options_.device),
               prepared.num_global_rows, prepared.global_offset};
}

Tensor DataLoader::gather(const Tensor& row_numbers) const {
  const Tensor numbers = row_numbers.to(options_.device);
  const Tensor x =
      Tensor::empty({numbers.size(0), rows_->num_features}, options_.dtype, options_.device);
  const ConstMatrixView source =
      device_features_.defined()
          ? ConstMatrixView(device_features_.matrix())
          : matrix_view(static_cast<const void*>(rows_->features.data()), DType::uint8,
                        rows_->num_rows(), rows_->num_features);
  x.backend().gather_rows(x.stream(), source, numbers.view(), x.matrix(), rows_->scale);
  return x;
}

std::unique_ptr<Prefetcher<DataLoader::Prepared>> DataLoader::prefetch_from(
    std::uint64_t epoch) const {
  const auto prepare = [rows = rows_, device = host_side_of(options_.device),
                        cursor = EpochCursor(sampler_, epoch)]() mutable {
    Prepared prepared;
    const BatchShard* shard = cursor.next();
    prepared.is_end_of_epoch = shard == nullptr;
    if (shard == nullptr) return std::optional(std::move(prepared));
    prepared.num_global_rows = shard->num_global_rows;
    prepared.global_offset = shard->global_offset;
    prepared.row_numbers = Tensor::empty({shard->rows.size()}, DType::int64, device);
    prepared.labels = Tensor::empty({shard->rows.size()}, DType::int64, device);
    const std::span<std::int64_t> row_numbers = prepared.row_numbers.host<std::int64_t>();
    const std::span<std::int64_t> labels = prepared.labels.host<std::int64_t>();
    for (std::size_t i = 0; i < shard->rows.size(); ++i) {
      const std::size_t row = shard->rows[i];
      require(row < rows->num_rows(), ErrorCode::Usage, kOperation,
              "the sampler asks for row {}; '{}' has {} rows", row, rows->name, rows->num_rows());
      row_numbers[i] = static_cast<std::int64_t>(row);
      labels[i] = rows->labels[row];
    }
    return std::optional(std::move(prepared));
  };
  return std::make_unique<Prefetcher<Prepared>>(prepare, options_.num_prefetched);
}

}  // namespace lockstep::data
