// The 1,797 handwritten digits of UCI's "Optical Recognition of Handwritten Digits" (its test set),
// part of the program: a real data set that needs no download.
//
// Each is an 8x8 image of values 0 ... 16: the dots of a 4x4 block of the scanned 32x32 bitmap.
//
// Source:  E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine
//          Learning Repository, 1998, https://doi.org/10.24432/C50P49
// Licence: Creative Commons Attribution 4.0 (CC BY 4.0),
//          https://creativecommons.org/licenses/by/4.0/. The values are unchanged; digits_rows.txt
//          writes them as text.
#pragma once

#include <cstddef>

#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

inline constexpr std::size_t kNumDigits = 1797;
inline constexpr std::size_t kNumTrainDigits = 1500;
inline constexpr std::size_t kNumDigitPixels = 64;
inline constexpr std::size_t kNumDigitClasses = 10;

// Rows begin ... end - 1 in the file's order, scaled by 1/16. By convention, rows 0 to 1499 are for
// training and 1500 to 1796 for the test.
// REQUIRES: begin <= end <= kNumDigits.
data::LabelledRows load_digits(std::size_t begin, std::size_t end);

struct Digits {
  data::LabelledTensors train;  // 1,500 rows of 64 pixels from 0 to 1, and their labels
  data::LabelledTensors test;   // 297
};

// All digits as float32 tensors on cpu:0.
Digits load_digits();

}  // namespace lockstep::datasets
