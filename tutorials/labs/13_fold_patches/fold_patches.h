// Lab 13: the backward of patches. README.md says what is to be done.
#pragma once

#include <cstddef>

#include "engine/autograd/variable.h"

namespace lab {

// A square window that slides over images.
struct Window {
  std::size_t size = 3;     // pixels, high and wide
  std::size_t stride = 1;   // pixels from one place to the next
  std::size_t padding = 0;  // pixels of zeros on every side of an image
};

// Copies the pixels of the window at each place into a row of a matrix, recorded in the engine's
// graph, so that backward() of whatever is made of the matrix reaches the images.
// Shapes: x [images, height, width, channels], channels last -> [images * out_height * out_width,
// size * size * channels]; out_height = (height + 2 * padding - size) / stride + 1, and so
// out_width; all float64 on the CPU.
lockstep::Variable patches(const lockstep::Variable& x, const Window& window);

}  // namespace lab
