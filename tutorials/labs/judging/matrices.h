// Matrices in a check's inputs: lists of rows.
#pragma once

#include "tutorials/labs/judging/values.h"

namespace lab {

// In [-1, 1).
inline json draw_matrix(lockstep::Rng& rng, std::size_t rows, std::size_t columns) {
  json matrix = json::array();
  for (std::size_t row = 0; row < rows; ++row) matrix.push_back(draw_numbers(rng, columns));
  return matrix;
}

}  // namespace lab
