// Windows of odd sizes, for the tests of convolutions and poolings.
#pragma once

#include "kernels/windows.h"

namespace lockstep::kernels {

// images, height, width, channels, kernel height, kernel width, stride, padding
inline constexpr Windows kWindows[] = {
    {1, 1, 1, 1, 1, 1, 1, 0},    {2, 5, 4, 3, 1, 1, 1, 0},  {3, 7, 6, 2, 3, 3, 1, 0},
    {2, 8, 8, 5, 3, 3, 1, 1},    {3, 9, 7, 3, 3, 2, 2, 1},  {2, 6, 5, 4, 1, 1, 2, 0},
    {5, 12, 12, 20, 5, 5, 1, 0}, {2, 3, 3, 33, 3, 3, 2, 1}, {2, 4, 5, 1, 5, 4, 3, 2},
    {0, 4, 4, 2, 3, 3, 1, 1},    {1, 6, 6, 50, 3, 3, 1, 1}, {2, 7, 7, 2, 2, 2, 3, 0},
};

}  // namespace lockstep::kernels
