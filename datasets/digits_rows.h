// The digits as text, one per row: the label '0' ... '9', then 64 pixels, '0' ... '9' for 0 to 9
// and 'a' ... 'g' for 10 to 16. Made by make_digits_rows.py.
#pragma once

#include <array>
#include <string_view>

#include "datasets/digits.h"

namespace lockstep::datasets {

extern const std::array<std::string_view, kNumDigits> kDigitRows;

}  // namespace lockstep::datasets
