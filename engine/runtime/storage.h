// A block of one device's memory, shared by the tensors that view it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/runtime/logical_device.h"

namespace lockstep::runtime {

class Storage {
 public:
  // Uninitialised memory of the device's pool.
  Storage(LogicalDevice& device, std::size_t num_bytes)
      : Storage(device, num_bytes, device.memory()) {}
  // Memory of another pool, which outlives this: pinned host memory, say.
  Storage(LogicalDevice& device, std::size_t num_bytes, MemoryPool& pool)
      : device_(device), pool_(pool), block_(pool.allocate(num_bytes)) {}
  // A part of another storage's memory, which it keeps alive, with a version of its own.
  Storage(const std::shared_ptr<Storage>& whole, std::size_t first_byte, std::size_t num_bytes)
      : device_(whole->device_),
        pool_(whole->pool_),
        block_{static_cast<std::byte*>(whole->data()) + first_byte, num_bytes},
        whole_(whole) {}
  ~Storage() { release(); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  // Throws Error{State} while the memory is freed.
  void* data() const {
    if (is_freed_) [[unlikely]]
      fail_freed();
    return block_.data;
  }
  LogicalDevice& device() const { return device_; }

  // How often the memory has been changed in place; whoever changes it counts. Any thread may.
  std::uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  // Gives the memory back while tensors still view it; take_memory() puts other memory, of another
  // storage of this device, under them. Neither changes the version.
  // REQUIRES: no other thread uses the storage. take_memory: other is as large.
  void free_memory();
  void take_memory(Storage& other);

  // Says that work submitted to `stream` so far uses this memory: after the last owner is gone it
  // is not handed out again until that work is done. The device's own compute stream needs no call.
  void record_use(Stream& stream);
  // The same with an event, for callers that must not touch the stream: another thread may be
  // capturing it.
  void record_use(std::shared_ptr<Event> event);

 private:
  [[noreturn]] static void fail_freed();
  void release();

  LogicalDevice& device_;
  MemoryPool& pool_;
  MemoryPool::Block block_;
  std::shared_ptr<Storage> whole_;  // whose memory it is, if this is a part
  bool is_freed_ = false;
  std::atomic<std::uint64_t> version_{0};
  std::mutex mutex_;
  std::vector<Stream*> used_by_;
  std::vector<std::shared_ptr<Event>> used_until_;
};

}  // namespace lockstep::runtime
