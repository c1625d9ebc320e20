#include "engine/act/port.h"

#include <algorithm>

namespace lockstep::act {
namespace {

// Kept: far more than there are messages under way at once.
constexpr std::size_t kMaxIntervals = 256;

}  // namespace

Time Port::occupy(Time earliest, Time length) {
  Time begin = std::max(earliest, forgotten_until_);
  auto next = busy_.begin();  // the first interval behind the gap
  for (; next != busy_.end() && next->begin < begin + length; ++next) {
    begin = std::max(begin, next->end);
  }
  const Time end = begin + length;
  busy_.insert(next, {begin, end});
  if (busy_.size() > kMaxIntervals) {
    forgotten_until_ = busy_.front().end;
    busy_.erase(busy_.begin());
  }
  return end;
}

}  // namespace lockstep::act
