// Items that one thread hands to another, in order.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

namespace lockstep::comm {

template <typename T>
class Queue {
 public:
  void put(T item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    size_.fetch_add(1, std::memory_order_seq_cst);
  }
  bool has_items() const { return size_.load(std::memory_order_seq_cst) != 0; }
  // REQUIRES: has_items().
  T take() {
    const std::lock_guard lock(mutex_);
    size_.fetch_sub(1, std::memory_order_seq_cst);
    T item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

 private:
  std::mutex mutex_;
  std::deque<T> items_;
  std::atomic<std::size_t> size_{0};
};

}  // namespace lockstep::comm
