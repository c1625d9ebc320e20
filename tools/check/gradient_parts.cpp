#include "tools/check/gradient_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/check/elements.h"

namespace lockstep::tools {
namespace {

double sign_of(std::size_t i) {
  return i % 2 == 0 ? 1 : -1;
}

// The factor that the gradients have in common: the one that fits best.
double common_factor(const std::vector<double>& mean, const std::vector<double>& reduced) {
  double products = 0;
  double squares = 0;
  for (std::size_t p = 0; p < mean.size(); ++p) {
    products += mean[p] * reduced[p];
    squares += mean[p] * mean[p];
  }
  return squares > 0 ? products / squares : 1;
}

}  // namespace

GradientParts::GradientParts(const std::vector<nn::NamedParameter>& parameters)
    : parameters_(parameters) {
  begin(0);
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    const auto look = [this, p](const Variable& parameter) {
      const Tensor& gradient = parameter.grad();
      double sum = 0;
      double size = 0;
      for (std::size_t i = 0; i < kFewElements; ++i) {
        const double value =
            element_at(gradient, place_of_element(i, gradient.num_elements(), step_));
        sum += sign_of(i) * value;
        size += std::abs(value);
      }
      parts_.own[p] = sum;
      parts_.size[p] = size;
    };
    hooks_.push_back(parameters_[p].second.on_grad_ready(look, HookOrder::first));
  }
}

GradientParts::~GradientParts() {
  for (std::size_t p = 0; p < parameters_.size(); ++p) {
    parameters_[p].second.remove_grad_hook(hooks_[p]);
  }
}

void GradientParts::begin(std::size_t step) {
  step_ = step;
  const std::vector<double> zeros(parameters_.size());
  parts_ = {zeros, zeros, zeros};
}

StepParts GradientParts::end(const std::vector<parallel::ShardPiece>& pieces) {
  for (const parallel::ShardPiece& piece : pieces) {
    const auto named = std::ranges::find(parameters_, piece.name, &nn::NamedParameter::first);
    const auto p = static_cast<std::size_t>(named - parameters_.begin());
    const Tensor& gradient = piece.value.grad();
    if (!gradient.defined() || named == parameters_.end()) continue;
    for (std::size_t i = 0; i < kFewElements; ++i) {
      const std::size_t place = place_of_element(i, piece.shape.num_elements(), step_);
      const bool is_mine = place >= piece.offset && place < piece.offset + gradient.num_elements();
      if (is_mine) parts_.reduced[p] += sign_of(i) * element_at(gradient, place - piece.offset);
    }
  }
  return parts_;
}

std::optional<Finding> judge_parts(std::size_t step, const std::vector<StepParts>& of_ranks,
                                   const std::vector<std::string>& names, Shares shares,
                                   Clipping clipping, double limit) {
  const auto num_ranks = static_cast<double>(of_ranks.size());
  std::vector<double> mean(names.size());
  std::vector<double> size(names.size());
  std::vector<double> sum_of_pieces(names.size());
  for (const StepParts& parts : of_ranks) {
    for (std::size_t p = 0; p < names.size(); ++p) {
      mean[p] += parts.own[p] / num_ranks;
      size[p] += parts.size[p] / num_ranks;
      sum_of_pieces[p] += parts.reduced[p];
    }
  }
  for (std::size_t rank = 0; rank < of_ranks.size(); ++rank) {
    const std::vector<double>& reduced =
        shares == Shares::pieces ? sum_of_pieces : of_ranks[rank].reduced;
    const double factor = clipping == Clipping::common_factor ? common_factor(mean, reduced) : 1;
    const bool is_factor = factor > 0 && factor <= 1 + limit;
    for (std::size_t p = 0; p < names.size(); ++p) {
      const double expected = (is_factor ? factor : 1) * mean[p];
      if (std::abs(reduced[p] - expected) <= limit * size[p]) continue;
      return Finding{"gradients", step, static_cast<int>(rank), names[p],
                     fmt::format("some elements of the ranks' own gradients average to {:.6g}, and "
                                 "of the reduced one to {:.6g}",
                                 expected / kFewElements, reduced[p] / kFewElements)};
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::tools
