#include "tutorials/timed_all_reduce.h"

#include <algorithm>
#include <chrono>

#include "engine/comm/run_ranks.h"
#include "engine/core/error.h"
#include "engine/trace/counters.h"

namespace lockstep::tutorial {
namespace {

constexpr int kRepeats = 10;

}  // namespace

AllReduceTime time_all_reduce(
    const std::string& link, int num_ranks, std::size_t num_elements,
    const std::function<void(comm::Communicator&, const Tensor&)>& all_reduce) {
  using Clock = std::chrono::steady_clock;
  AllReduceTime result{1e9, 0};
  comm::ThreadGroupOptions options;
  options.link = comm::parse_link(link);
  trace::reset_collective_counts();
  const auto work = [&](comm::Communicator& ranks) {
    const Tensor buffer = Tensor::empty({num_elements});
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      buffer.fill(ranks.rank() + 1);
      ranks.barrier();
      const Clock::time_point start = Clock::now();
      all_reduce(ranks, buffer);
      ranks.barrier();
      const std::chrono::duration<double> elapsed = Clock::now() - start;
      if (ranks.rank() == 0) result.seconds = std::min(result.seconds, elapsed.count());
    }
    const auto sum = static_cast<float>(num_ranks * (num_ranks + 1) / 2);
    require(std::ranges::all_of(buffer.host<float>(), [&](float x) { return x == sum; }),
            ErrorCode::Numeric, "all-reduce", "rank {} holds a wrong sum", ranks.rank());
  };
  comm::run_ranks(num_ranks, work, options);
  for (int rank = 0; rank < num_ranks; ++rank) {
    const auto sent = static_cast<double>(trace::collective_bytes_of(rank)) / sizeof(float);
    result.sent_buffers =
        std::max(result.sent_buffers, sent / kRepeats / static_cast<double>(num_elements));
  }
  return result;
}

}  // namespace lockstep::tutorial
