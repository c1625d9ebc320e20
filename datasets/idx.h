// The IDX format, in which MNIST and Fashion-MNIST are distributed, plain or gzipped.
//
//   2 bytes   zero
//   1 byte    element type: 0x08 = unsigned byte, the only one read here
//   1 byte    d, the number of dimensions
//   d * 4     their sizes, big-endian, outermost first
//   the rest  the elements, row-major
//
// Source: Y. LeCun, "THE IDX FILE FORMAT", http://yann.lecun.com/exdb/mnist/
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/core/shape.h"
#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> elements;
};

// Reads one file. gzip is recognised by content. Memory grows with the elements that arrive,
// whatever the header promises. Throws Error{Io} that names the file if it is missing, is corrupt
// gzip, is not an IDX file of unsigned bytes, is truncated, or is longer than its sizes say.
IdxArray read_idx(const std::filesystem::path& path);

// Images [rows, ...] with their labels [rows]; pixels are scaled by 1/255.
// Throws read_idx's errors, and Error{Io} if there are no rows, the two files differ in rows, or a
// label is not in 0 ... num_classes - 1.
data::LabelledRows read_labelled_idx(const std::filesystem::path& images,
                                     const std::filesystem::path& labels, std::size_t num_classes,
                                     std::string name);

}  // namespace lockstep::datasets
