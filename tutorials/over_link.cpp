#include "tutorials/over_link.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/comm/thread_group.h"
#include "engine/core/error.h"
#include "engine/trace/counters.h"
#include "engine/trace/recorder.h"

namespace lockstep::tutorial {
namespace {

constexpr int kRepeats = 10;
constexpr int kRounds = 3;
constexpr std::chrono::seconds kLongestTime{15};  // where a noisy machine hides the difference

std::int64_t duration(const trace::Span& span) {
  return span.end_ns - span.begin_ns;
}

StepTime record_steps(const std::string& link, int num_ranks, const Way& train) {
  comm::ThreadGroupOptions options;
  options.link = comm::parse_link(link);
  // Two ranks need but one exchange, and its latency: each gets the other's numbers and adds.
  if (num_ranks == 2) options.default_plan = plan::AllReducePlan::one_shot;
  trace::reset_collective_counts();
  trace::start();
  comm::run_ranks(num_ranks, train, options);
  trace::stop();
  const std::vector<trace::Span> spans = trace::collect().spans;
  const trace::Span* fastest = nullptr;
  std::size_t num_steps = 0;
  for (const trace::Span& span : spans) {
    if (span.rank != 0 || span.category != trace::Category::step) continue;
    ++num_steps;
    if (!fastest || duration(span) < duration(*fastest)) fastest = &span;
  }
  require(fastest != nullptr, ErrorCode::State, "time_steps", "rank 0 recorded no step");
  StepTime result;
  result.step = trace::step_breakdown(spans, *fastest);
  for (const trace::CollectiveCount& count : trace::collective_counts()) {
    if (count.rank != 0 || count.operation != "all_reduce") continue;
    result.num_all_reduces = count.num_calls / num_steps;
  }
  return result;
}

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

Times time_steps(const std::string& link, int num_ranks, const std::vector<Way>& ways,
                 const std::function<bool(const Times&)>& is_settled) {
  Times fastest(ways.size());
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0;; ++round) {
    const bool is_late = std::chrono::steady_clock::now() - start > kLongestTime;
    if (round >= kRounds && (is_late || is_settled(fastest))) break;
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const StepTime time = record_steps(link, num_ranks, ways[i]);
      if (round == 0 || time.step.step < fastest[i].step.step) fastest[i] = time;
    }
  }
  return fastest;
}

double link_seconds(const std::string& link, double num_bytes, int num_calls) {
  const comm::LinkSpec spec = comm::parse_link(link);
  return num_bytes / spec.bytes_per_second + 3 * num_calls * spec.latency_seconds;
}

double gain(const StepTime& slow, const StepTime& fast) {
  return slow.step.step / fast.step.step;
}

void print_times(const std::vector<const char*>& names, const Times& times) {
  fmt::print("               all-reduces         step   exposed comm.   overlapped\n");
  for (std::size_t i = 0; i < times.size(); ++i) {
    const trace::StepBreakdown& step = times[i].step;
    fmt::print("{:<14} {:>4} a step {:>9.2f} ms {:>12.2f} ms {:>9.2f} ms\n", names[i],
               times[i].num_all_reduces, 1e3 * step.step, 1e3 * step.exposed_comm,
               1e3 * step.overlapped_comm);
  }
  fmt::print("exposed: the rank computes nothing meanwhile; overlapped: it computes\n");
}

}  // namespace lockstep::tutorial
