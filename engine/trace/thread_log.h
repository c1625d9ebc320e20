// The buffer in which one thread keeps its spans, readable by others while it grows.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "engine/trace/recorder.h"

namespace lockstep::trace::detail {

// How many more chunks all threads of a recording may take together.
class ChunkBudget {
 public:
  explicit ChunkBudget(std::size_t num_chunks)
      : num_left_(static_cast<std::ptrdiff_t>(num_chunks)) {}

  bool take() { return num_left_.fetch_sub(1, std::memory_order_relaxed) > 0; }

 private:
  std::atomic<std::ptrdiff_t> num_left_;
};

// A list that one thread appends to and any thread may read. An entry is complete before
// num_entries_ says that it exists, and is never changed again.
template <typename T>
class AppendLog {
 public:
  AppendLog() = default;
  AppendLog(const AppendLog&) = delete;
  AppendLog& operator=(const AppendLog&) = delete;
  ~AppendLog() {
    for (Chunk* chunk = first_.load(std::memory_order_relaxed); chunk != nullptr;) {
      Chunk* next = chunk->next.load(std::memory_order_relaxed);
      delete chunk;
      chunk = next;
    }
  }

  // False when there is no room. Only the owning thread calls this.
  bool append(const T& entry, ChunkBudget& budget) {
    const std::size_t position = num_entries_.load(std::memory_order_relaxed);
    const std::size_t offset = position % kChunkEntries;
    if (offset == 0) {
      if (!budget.take()) {
        return false;
      }
      Chunk* chunk = new (std::nothrow) Chunk;
      if (chunk == nullptr) {
        return false;
      }
      (last_ == nullptr ? first_ : last_->next).store(chunk, std::memory_order_release);
      last_ = chunk;
    }
    last_->entries[offset] = entry;
    num_entries_.store(position + 1, std::memory_order_release);
    return true;
  }

  // Calls visit(entry) for each entry there is now. Any thread.
  template <typename Visit>
  void for_each(Visit visit) const {
    const std::size_t num_entries = num_entries_.load(std::memory_order_acquire);
    const Chunk* chunk = first_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < num_entries; ++i) {
      if (i != 0 && i % kChunkEntries == 0) {
        chunk = chunk->next.load(std::memory_order_acquire);
      }
      visit(chunk->entries[i % kChunkEntries]);
    }
  }

 private:
  struct Chunk {
    std::array<T, kChunkEntries> entries;
    std::atomic<Chunk*> next{nullptr};
  };

  std::atomic<Chunk*> first_{nullptr};
  Chunk* last_ = nullptr;  // the owner's
  std::atomic<std::size_t> num_entries_{0};
};

class ThreadLog {
 public:
  ThreadLog(std::uint32_t thread, std::shared_ptr<ChunkBudget> budget)
      : thread_(thread), budget_(std::move(budget)) {}

  // Of the owning thread only.
  std::uint64_t next_id() { return static_cast<std::uint64_t>(thread_) << 40 | ++last_id_; }
  bool append(const Span& span) { return counted(spans_.append(span, *budget_)); }
  bool append(const FlowPoint& point) { return counted(flows_.append(point, *budget_)); }
  bool append(const Sample& sample) { return counted(memory_.append(sample, *budget_)); }

  // Of any thread.
  std::uint32_t thread() const { return thread_; }
  const AppendLog<Span>& spans() const { return spans_; }
  const AppendLog<FlowPoint>& flows() const { return flows_; }
  const AppendLog<Sample>& memory() const { return memory_; }
  std::size_t num_dropped() const { return num_dropped_.load(std::memory_order_relaxed); }

 private:
  bool counted(bool kept) {
    if (!kept) {
      num_dropped_.fetch_add(1, std::memory_order_relaxed);
    }
    return kept;
  }

  const std::uint32_t thread_;
  const std::shared_ptr<ChunkBudget> budget_;
  std::uint64_t last_id_ = 0;
  AppendLog<Span> spans_;
  AppendLog<FlowPoint> flows_;
  AppendLog<Sample> memory_;
  std::atomic<std::size_t> num_dropped_{0};
};

// The calling thread's log in a recording; null when that recording is over and another began.
ThreadLog* thread_log(std::uint32_t recording);

}  // namespace lockstep::trace::detail
