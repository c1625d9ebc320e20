#include "simulate/slow_motion/memory_times.h"

#include <iterator>

namespace lockstep::slow_motion {
namespace {

std::uintptr_t begin_of(const Memory& memory) {
  return reinterpret_cast<std::uintptr_t>(memory.data);
}

}  // namespace

MemoryTimes::Blocks::const_iterator MemoryTimes::first_behind(std::uintptr_t begin) const {
  auto block = blocks_.upper_bound(begin);
  if (block != blocks_.begin() && std::prev(block)->second.end > begin) --block;
  return block;
}

void MemoryTimes::write(const Memory& memory, const Written& written) {
  if (memory.data == nullptr || memory.num_bytes == 0) return;
  const std::uintptr_t begin = begin_of(memory);
  const std::uintptr_t end = begin + memory.num_bytes;
  const std::lock_guard lock(mutex_);
  for (auto block = first_behind(begin); block != blocks_.end() && block->first < end;) {
    const auto [old_begin, old] = *block;
    block = blocks_.erase(block);
    if (old_begin < begin) blocks_.emplace(old_begin, Block{begin, old.written});
    if (old.end > end) block = blocks_.emplace(end, old).first;
  }
  blocks_.insert_or_assign(begin, Block{end, written});
}

Written MemoryTimes::last_write(const Memory& memory) const {
  Written last;
  if (memory.data == nullptr || memory.num_bytes == 0) return last;
  const std::uintptr_t end = begin_of(memory) + memory.num_bytes;
  const std::lock_guard lock(mutex_);
  for (auto block = first_behind(begin_of(memory)); block != blocks_.end() && block->first < end;
       ++block) {
    if (block->second.written.time >= last.time) last = block->second.written;
  }
  return last;
}

}  // namespace lockstep::slow_motion
