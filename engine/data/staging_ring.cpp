#include "engine/data/staging_ring.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "engine/core/error.h"
#include "engine/runtime/cuda_device.h"

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
      slots_(num_slots) {
  require(device.type == DeviceType::cuda, ErrorCode::Device, "staging",
          "serves CUDA devices, found {}", to_string(device));
}

// The slots' memory goes back to its pools, which wait for copies that are still under way.
StagingRing::~StagingRing() {
  for (StagingSlot& slot : slots_) reserve(slot, 0);
}

// Memory for num_rows rows; 0 lets go of it.
void StagingRing::reserve(StagingSlot& slot, std::size_t num_rows) {
  for (Tensor* tensor :
       {&slot.pinned_features, &slot.pinned_labels, &slot.features, &slot.labels}) {
    if (tensor->defined() && slot.uploaded) tensor->storage()->record_use(slot.uploaded);
    if (tensor->defined() && slot.consumed) tensor->storage()->record_use(slot.consumed);
    *tensor = {};
  }
  if (num_rows == 0) return;
  const Shape pixels{num_rows, rows_->num_features};
  slot.pinned_features = Tensor::empty_pinned(pixels, DType::uint8);
  slot.pinned_labels = Tensor::empty_pinned({num_rows}, DType::int64);
  // Not memory that is free in the order of the compute stream: this thread must not touch that
  // stream, from which the consumer may be capturing a graph.
  slot.features = Tensor::empty_in(device_.staging_memory(), device_, pixels, DType::uint8);
  slot.labels = Tensor::empty_in(device_.staging_memory(), device_, {num_rows}, DType::int64);
  slot.consumed = nullptr;
}

StagingSlot& StagingRing::fill(std::span<const std::size_t> rows) {
  StagingSlot& slot = slots_[next_slot_++ % slots_.size()];
  // The pinned side is ours again. A kernel's complaint is the consumer's to hear.
  if (slot.uploaded) slot.uploaded->wait_quietly();
  if (!slot.features.defined() || slot.features.size(0) < rows.size()) {
    reserve(slot, std::max<std::size_t>(rows.size(), 1));
  }
  const std::size_t row_bytes = rows_->num_features;
  auto* features = static_cast<std::uint8_t*>(slot.pinned_features.raw());
  auto* labels = static_cast<std::int64_t*>(slot.pinned_labels.raw());
  const std::size_t num_parts =
      std::clamp<std::size_t>(rows.size() * row_bytes / kBytesPerThread, 1, threads_.num_threads());
  threads_.parallel_for(num_parts, [&](std::size_t part) {
    const std::size_t end = rows.size() * (part + 1) / num_parts;
    for (std::size_t i = rows.size() * part / num_parts; i < end; ++i) {
      std::memcpy(features + i * row_bytes, rows_->row(rows[i]).data(), row_bytes);
      labels[i] = rows_->labels[rows[i]];
    }
  });
  slot.num_rows = rows.size();
  runtime::Stream& copies = device_.copy_stream();
  if (slot.consumed) copies.wait(slot.consumed);
  runtime::copy_on_cuda_stream(copies, slot.features.raw(), features, rows.size() * row_bytes);
  runtime::copy_on_cuda_stream(copies, slot.labels.raw(), labels,
                               rows.size() * sizeof(std::int64_t));
  slot.uploaded = copies.record();
  return slot;
}

void StagingRing::take(StagingSlot& slot, const Tensor& x, const Tensor& y) {
  runtime::Stream& stream = device_.compute_stream();
  const std::size_t num_rows = slot.num_rows;
  if (!row_numbers_.defined() || row_numbers_.num_elements() < num_rows) {
    std::vector<std::int64_t> numbers(std::max<std::size_t>(num_rows, 1));
    std::iota(numbers.begin(), numbers.end(), 0);
    row_numbers_ = Tensor::from(numbers, {numbers.size()}, device_.device());
  }
  stream.wait(slot.uploaded);
  x.backend().gather_rows(stream, slot.features.matrix(), row_numbers_.rows(0, num_rows).view(),
                          x.matrix(), rows_->scale, {slot.labels.view(), y.view()});
  slot.consumed = stream.record();
}

}  // namespace lockstep::data
