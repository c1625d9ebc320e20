#include "tutorials/labs/judging/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lab {

std::size_t draw_between(lockstep::Rng& rng, std::size_t low, std::size_t high) {
  return low + static_cast<std::size_t>(rng.below(high - low + 1));
}

Numbers draw_whole_numbers(lockstep::Rng& rng, std::size_t count) {
  Numbers numbers(count);
  for (double& number : numbers) number = static_cast<double>(rng.below(101)) - 50;
  return numbers;
}

Numbers draw_numbers(lockstep::Rng& rng, std::size_t count) {
  Numbers numbers(count);
  for (double& number : numbers) number = rng.uniform(-1, 1);
  return numbers;
}

json draw_matrix(lockstep::Rng& rng, std::size_t rows, std::size_t columns) {
  json matrix = json::array();
  for (std::size_t row = 0; row < rows; ++row) matrix.push_back(draw_numbers(rng, columns));
  return matrix;
}

std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : what.ends_with("ch") ? "es" : "s");
}

std::string differ(std::string_view what, const Numbers& expected, const Numbers& found,
                   double tolerance) {
  if (expected.size() != found.size()) {
    return fmt::format("{}: expected {} numbers, found {}", what, expected.size(), found.size());
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double allowed = tolerance * std::max(1.0, std::abs(expected[i]));
    if (std::abs(expected[i] - found[i]) <= allowed) continue;
    return fmt::format("{}, element {}: expected {:.7g}, found {:.7g}", what, i, expected[i],
                       found[i]);
  }
  return {};
}

std::string differ(std::string_view what, const Sizes& expected, const Sizes& found) {
  if (expected == found) return {};
  return fmt::format("{}: expected [{}], found [{}]", what, fmt::join(expected, ", "),
                     fmt::join(found, ", "));
}

}  // namespace lab
