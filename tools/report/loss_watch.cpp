#include "tools/report/loss_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tools/report/status_line.h"

namespace lockstep::tools {
namespace {

constexpr double kExplosion = 10;

}  // namespace

LossWatch::LossWatch(std::size_t num_classes)
    : guessing_loss_(std::log(static_cast<double>(std::max<std::size_t>(2, num_classes)))) {}

std::optional<std::string> LossWatch::see(std::size_t step, double loss) {
  if (step == 0) first_loss_ = loss;
  const bool has_exploded = loss > kExplosion * std::max(first_loss_, guessing_loss_);
  if (has_warned_ || !has_exploded) return {};
  has_warned_ = true;
  return fmt::format(
      "the loss exploded: {:.4g} at step 0, {:.4g} at step {}; use a smaller --lr, or --clip-norm",
      first_loss_, loss, step);
}

std::function<void(std::size_t, double)> warn_of_explosion(std::size_t num_classes) {
  return [watch = LossWatch(num_classes)](std::size_t step, double loss) mutable {
    const std::optional<std::string> warning = watch.see(step, loss);
    if (!warning) return;
    clear_status();
    fmt::print(stderr, "lockstep: [train] warning: {}\n", *warning);
  };
}

}  // namespace lockstep::tools
