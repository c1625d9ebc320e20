#include "engine/data/staging_ring.h"

#include <algorithm>
#include <numeric>

#include "engine/runtime/cuda_device.h"
#include "kernels/calls.h"

namespace lockstep::data {
namespace {

// One core copies rows of a few hundred bytes at a few GB/s, a GPU takes them at fifty.
constexpr std::size_t kMaxThreads = 4;
constexpr std::size_t kBytesPerThread = std::size_t{128} << 10;

std::size_t num_threads() {
  return std::clamp<std::size_t>(runtime::num_cores() / 2, 1, kMaxThreads);
}

}  // namespace

StagingRing::StagingRing(std::shared_ptr<const LabelledRows> rows, Device device,
                         std::size_t num_slots)
    : rows_(std::move(rows)),
      device_(runtime::logical_device(device)),
      threads_(num_threads()),
      slots_(num_slots) {}

StagingRing::~StagingRing() {
  for (StagingSlot& slot : slots_) reserve(slot, 0);
}

void StagingRing::reserve(StagingSlot& slot, std::size_t num_rows) {
  for (Tensor* tensor :
       {&slot.pinned_features, &slot.pinned_labels, &slot.features, &slot.labels}) {
    if (tensor->defined() && slot.uploaded) tensor->storage()->record_use(slot.uploaded);
    if (tensor->defined() && slot.consumed) tensor->storage()->record_use(slot.consumed);
    *tensor = {};
  }
  if (num_rows == 0) return;
  const Shape bytes{num_rows, rows_->row_bytes()};
  const Shape labels{num_rows * rows_->labels_per_row()};
  slot.pinned_features = Tensor::empty_pinned(bytes, DType::uint8);
  slot.pinned_labels = Tensor::empty_pinned(labels, DType::int64);
  // This memory does not come from the compute stream's pool: this thread must not touch that
  // stream, from which the consumer may be capturing a graph.
  slot.features = Tensor::empty_in(device_.copy_pool(), device_, bytes, DType::uint8);
  slot.labels = Tensor::empty_in(device_.copy_pool(), device_, labels, DType::int64);
  slot.consumed = nullptr;
}

StagingSlot& StagingRing::fill(std::span<const std::size_t> rows, const WriteRow& write_row) {
  StagingSlot& slot = slots_[next_slot_++ % slots_.size()];
  // The pinned side is free again. The consumer, not this thread, should see a kernel's error.
  if (slot.uploaded) slot.uploaded->wait_quietly();
  if (!slot.features.defined() || slot.features.size(0) < rows.size()) {
    reserve(slot, std::max<std::size_t>(rows.size(), 1));
  }
  const std::size_t row_bytes = rows_->row_bytes();
  const std::size_t row_labels = rows_->labels_per_row();
  auto* features = static_cast<std::uint8_t*>(slot.pinned_features.raw());
  auto* labels = static_cast<std::int64_t*>(slot.pinned_labels.raw());
  const std::size_t num_parts =
      std::clamp<std::size_t>(rows.size() * row_bytes / kBytesPerThread, 1, threads_.num_threads());
  threads_.parallel_for(num_parts, [&](std::size_t part) {
    const std::size_t end = rows.size() * (part + 1) / num_parts;
    for (std::size_t i = rows.size() * part / num_parts; i < end; ++i) {
      write_row(rows[i], features + i * row_bytes, labels + i * row_labels);
    }
  });
  slot.num_rows = rows.size();
  runtime::Stream& copies = device_.copy_stream();
  if (slot.consumed) copies.wait(slot.consumed);
  runtime::copy_on_cuda_stream(copies, slot.features.raw(), features, rows.size() * row_bytes);
  runtime::copy_on_cuda_stream(copies, slot.labels.raw(), labels,
                               rows.size() * row_labels * sizeof(std::int64_t));
  slot.uploaded = copies.record();
  return slot;
}

void StagingRing::take(StagingSlot& slot, const Tensor& x, const Tensor& y) {
  runtime::Stream& stream = device_.compute_stream();
  const std::size_t num_rows = slot.num_rows;
  stream.wait(slot.uploaded);
  y.backend().copy(stream,
                   {slot.labels.view().slice(0, num_rows * rows_->labels_per_row()), y.view()});
  if (rows_->is_text()) {
    copy_tokens(slot.features, x);
    slot.consumed = stream.record();
    return;
  }
  if (!row_numbers_.defined() || row_numbers_.num_elements() < num_rows) {
    std::vector<std::int64_t> numbers(std::max<std::size_t>(num_rows, 1));
    std::iota(numbers.begin(), numbers.end(), 0);
    row_numbers_ = Tensor::from(numbers, {numbers.size()}, device_.device());
  }
  x.backend().gather_rows(stream, {slot.features.matrix(), row_numbers_.rows(0, num_rows).view(),
                                   x.matrix(), rows_->scale});
  slot.consumed = stream.record();
}

void copy_tokens(const Tensor& bytes, const Tensor& x) {
  x.backend().copy(x.stream(), {{bytes.raw(), DType::int64, x.num_elements()}, x.view()});
}

}  // namespace lockstep::data
