#pragma once

#include "kernels/windows.h"

namespace lockstep::kernels::cuda {

// Windows with the sizes by which kernels divide: one division of 64 bits finds the image, and the
// divisions within it have 32 bits.
struct Geometry {
  unsigned height, width, channels, kernel_height, kernel_width, stride, padding;
  unsigned out_height, out_width, rows_per_image, cols;

  explicit Geometry(const Windows& w)
      : height(static_cast<unsigned>(w.height)),
        width(static_cast<unsigned>(w.width)),
        channels(static_cast<unsigned>(w.channels)),
        kernel_height(static_cast<unsigned>(w.kernel_height)),
        kernel_width(static_cast<unsigned>(w.kernel_width)),
        stride(static_cast<unsigned>(w.stride)),
        padding(static_cast<unsigned>(w.padding)),
        out_height(static_cast<unsigned>(w.out_height())),
        out_width(static_cast<unsigned>(w.out_width())),
        rows_per_image(static_cast<unsigned>(w.rows_per_image())),
        cols(static_cast<unsigned>(w.cols())) {}
};

}  // namespace lockstep::kernels::cuda
