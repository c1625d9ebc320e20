// Values that judges draw, and how they compare them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tutorials/labs/judging/lab.h"

namespace lab {

using Numbers = std::vector<double>;
using Sizes = std::vector<std::size_t>;

// low ... high, both included.
std::size_t draw_between(lockstep::Rng& rng, std::size_t low, std::size_t high);

// Whole numbers from -50 to 50: their sums are exact in whatever order.
Numbers draw_whole_numbers(lockstep::Rng& rng, std::size_t count);

// In [-1, 1).
Numbers draw_numbers(lockstep::Rng& rng, std::size_t count);

// A matrix of them: a list of rows.
json draw_matrix(lockstep::Rng& rng, std::size_t rows, std::size_t columns);

// "1 rank", "3 ranks".
std::string counted(std::size_t count, std::string_view what);

// "grad_x, element 2: expected 9, found 6" where the numbers differ by more than
// tolerance * max(1, |expected|), or there are more or fewer; else empty. A NaN differs from all.
std::string differ(std::string_view what, const Numbers& expected, const Numbers& found,
                   double tolerance = 0);

// The same for lists of whole numbers.
std::string differ(std::string_view what, const Sizes& expected, const Sizes& found);

}  // namespace lab
