#include "engine/optim/schedule.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numbers>

#include "engine/core/error.h"
#include "engine/trace/observer.h"

namespace lockstep::optim {
namespace {

// Reads all of word; false if it is not a number of this kind.
template <typename Number>
bool parse(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc{} && end == word.data() + word.size();
}

}  // namespace

double Schedule::learning_rate(double base, std::size_t step) const {
  const double rate = rate_of(base, step);
  trace::fact("schedule", {{"base", base}, {"step", step}, {"rate", rate}});
  return rate;
}

double Schedule::rate_of(double base, std::size_t step) const {
  if (step < warmup_steps) {
    return base * (static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
  }
  const std::size_t since = step - warmup_steps;
  if (kind == Kind::constant) return base;
  if (kind == Kind::step) return base * std::pow(gamma, static_cast<double>(since / step_size));
  const std::size_t length = num_steps - std::min(num_steps, warmup_steps);
  const double minimum = last * base;
  if (since >= length) return minimum;
  const double angle = std::numbers::pi * static_cast<double>(since) / static_cast<double>(length);
  return minimum + (base - minimum) * (1 + std::cos(angle)) / 2;
}

Schedule parse_schedule(std::string_view text, std::size_t num_steps, std::size_t warmup_steps) {
  Schedule schedule;
  schedule.warmup_steps = warmup_steps;
  schedule.num_steps = num_steps;
  if (text == "constant") return schedule;
  if (text == "cosine") {
    schedule.kind = Schedule::Kind::cosine;
    return schedule;
  }
  constexpr std::string_view kCosine = "cosine:";
  constexpr std::string_view kStep = "step:";
  bool is_valid = false;
  if (text.starts_with(kCosine)) {
    schedule.kind = Schedule::Kind::cosine;
    is_valid = parse(text.substr(kCosine.size()), schedule.last) && schedule.last >= 0 &&
               schedule.last <= 1;
  } else if (text.starts_with(kStep)) {
    schedule.kind = Schedule::Kind::step;
    const std::string_view numbers = text.substr(kStep.size());
    const std::size_t colon = numbers.find(':');
    is_valid =
        parse(numbers.substr(0, colon), schedule.step_size) && schedule.step_size > 0 &&
        (colon == std::string_view::npos || (parse(numbers.substr(colon + 1), schedule.gamma) &&
                                             schedule.gamma > 0 && std::isfinite(schedule.gamma)));
  }
  require(is_valid, ErrorCode::Usage, "schedule",
          "unknown schedule '{}'; allowed are constant, step:SIZE[:GAMMA] and cosine[:LAST], where "
          "LAST is a part of the first learning rate, such as 0.1",
          text);
  return schedule;
}

}  // namespace lockstep::optim
