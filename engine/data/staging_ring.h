// Batches on their way from host memory to a CUDA device, while the device computes on earlier
// ones.
//
//   rows in host memory ─gather─> pinned slot ─copy stream─> device slot ─compute stream─> batch
//
// A loader's thread fills slots one after the other; the consumer takes them in that order. Slots
// are used in turn, so copies are ordered by events alone and memory is allocated once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "engine/data/labelled_rows.h"
#include "engine/runtime/thread_pool.h"
#include "engine/tensor/tensor.h"

namespace lockstep::data {

// Rows of bytes and their labels in one slot.
struct StagingSlot {
  Tensor pinned_features;  // uint8 [capacity, num_features]
  Tensor pinned_labels;    // int64 [capacity]
  Tensor features;         // on the device, of the same sizes
  Tensor labels;
  std::size_t num_rows = 0;                  // filled in
  std::shared_ptr<runtime::Event> uploaded;  // on the copy stream
  std::shared_ptr<runtime::Event> consumed;  // on the compute stream; nullptr: not yet
};

class StagingRing {
 public:
  // Throws Error{Device} for a device that is no CUDA device.
  StagingRing(std::shared_ptr<const LabelledRows> rows, Device device, std::size_t num_slots);
  ~StagingRing();
  StagingRing(const StagingRing&) = delete;
  StagingRing& operator=(const StagingRing&) = delete;

  // The loader's thread: gathers the rows into the next slot and starts its copy to the device.
  // REQUIRES: every row exists; of the last num_slots - 1 slots given out all older ones were
  // taken.
  StagingSlot& fill(std::span<const std::size_t> rows);

  // The consumer: x[r] = scale * row r as numbers, y[r] = label r; enqueued on the compute stream.
  // x: float32 or float64 [num_rows, num_features], y: int64 [num_rows], both on the device.
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

}  // namespace lockstep::data
