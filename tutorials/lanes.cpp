#include "tutorials/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "simulate/slow_motion/machine.h"

namespace lockstep::tutorial {
namespace {

constexpr std::size_t kColumns = 72;  // in a row, which has "gpu 0 |" before it and "|" behind
constexpr std::size_t kTicks = 6;     // on the axis, and one at its end

// A moment of the median step as a column.
std::ptrdiff_t column_of(const ActedSteps& acted, std::int64_t moment_ns, std::int64_t width_ns) {
  const std::int64_t since = std::clamp<std::int64_t>(moment_ns - acted.step.begin_ns, 0, width_ns);
  return since * static_cast<std::int64_t>(kColumns) / width_ns;
}

// Each of a device's spans in the median step as a run of the letter that letter_of() gives it; 0:
// the span is not drawn.
template <typename LetterOf>
std::string draw_lane(const ActedSteps& acted, int device, std::int64_t width_ns,
                      const LetterOf& letter_of) {
  std::string lane(kColumns, ' ');
  for (const trace::Span& span : acted.recording.spans) {
    const bool is_inside = span.end_ns > acted.step.begin_ns && span.begin_ns < acted.step.end_ns;
    if (span.rank != device || !is_inside) continue;
    const char letter = letter_of(span);
    if (letter == 0) continue;
    const std::int64_t end_ns = std::min(span.end_ns, acted.step.end_ns);
    std::fill(lane.begin() + column_of(acted, span.begin_ns, width_ns),
              lane.begin() + column_of(acted, end_ns, width_ns), letter);
  }
  return lane;
}

}  // namespace

bool is_all_reduce(const trace::Span& span) {
  return span.thread == trace::kDeviceThread && span.lane == trace::Lane::comm;
}

std::int64_t length_ns(const ActedSteps& acted) {
  return acted.step.end_ns - acted.step.begin_ns;
}

std::string draw_kernels(const ActedSteps& acted, int device, std::int64_t width_ns) {
  bool is_backward = false;  // from the first kernel of that name on, whatever the next are called
  return draw_lane(acted, device, width_ns, [&](const trace::Span& span) -> char {
    if (!slow_motion::is_kernel(span)) return 0;
    const std::string_view name = span.name;
    if (name == "add" || name == "axpy") return '+';
    if (name == "sgd") return 'u';
    is_backward = is_backward || name.find("backward") != name.npos;
    return is_backward ? 'b' : 'f';
  });
}

std::string draw_all_reduces(const ActedSteps& acted, int device, std::int64_t width_ns) {
  int bucket = 0;
  return draw_lane(acted, device, width_ns, [&](const trace::Span& span) -> char {
    if (!is_all_reduce(span)) return 0;
    return static_cast<char>('0' + bucket++ % 10);
  });
}

void print_axis(std::int64_t width_ns, std::size_t indent) {
  const auto label = [&](std::size_t tick) {
    return fmt::format("{:.0f}", 1e-3 * static_cast<double>(width_ns * tick) / kTicks);
  };
  std::string axis(indent, ' ');
  for (std::size_t tick = 0; tick < kTicks; ++tick) {
    axis.resize(indent + tick * kColumns / kTicks, ' ');
    axis += "|" + label(tick) + (tick == 0 ? " us" : "");
  }
  fmt::print("{}{:>{}}|\n", axis, label(kTicks), indent + kColumns - axis.size());
}

}  // namespace lockstep::tutorial
