// The digits as text, a line for each: the label '0' ... '9', then 64 pixels, '0' ... '9' for 0 to
// 9 and 'a' ... 'g' for 10 to 16. Made by make_digits_rows.py; the build embeds digits_rows.txt.
#pragma once

#include <string_view>

namespace lockstep::datasets {

extern const std::string_view kDigitRows;

}  // namespace lockstep::datasets
