// Numbers as Python prints them, for printed modules.
#pragma once

#include <string>

namespace lockstep::nn {

// 0.5 -> "0.5", 1 -> "1.0", 1e-5 -> "1e-05".
std::string python_number(double value);

}  // namespace lockstep::nn
