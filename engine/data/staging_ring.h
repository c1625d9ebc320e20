// Batches on their way from host memory to a CUDA device, while the device computes on earlier
// ones.
//
//   rows in host memory ─gather─> pinned slot ─copy stream─> device slot ─compute stream─> batch
//
// A loader's thread fills slots one after the other; the consumer takes them in that order. Slots
// are used in turn, so copies are ordered by events alone and memory is allocated once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "engine/data/labelled_rows.h"
#include "engine/runtime/threads.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

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

  // REQUIRES: a CUDA device.
  StagingRing(std::shared_ptr<const LabelledRows> rows, Device device, std::size_t num_slots);
  // The slots' memory goes back to its pools, which wait for copies that are still under way.
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
  // Takes memory for num_rows rows; 0 releases it.
  void reserve(StagingSlot& slot, std::size_t num_rows);

  std::shared_ptr<const LabelledRows> rows_;
  runtime::LogicalDevice& device_;
  runtime::ThreadPool threads_;
  std::vector<StagingSlot> slots_;
  std::size_t next_slot_ = 0;
  Tensor row_numbers_;  // int64 0, 1, 2, ... on the device: the consumer's gather takes every row
};

// A text's tokens, which lie in memory as bytes.
void copy_tokens(const Tensor& bytes, const Tensor& x);

}  // namespace lockstep::data
