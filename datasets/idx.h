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

// Reads one file; gzip is recognised by content.
// Throws Error{Io} that names the file when it is missing, truncated, longer than its sizes say,
// corrupt gzip, or no IDX file of unsigned bytes. A header that promises more than the file can
// hold fails before memory is taken.
IdxArray read_idx(const std::filesystem::path& path);

// Reads images [rows, ...] and their labels [rows]. Pixels are scaled by 1/255.
// Throws Error{Io} as read_idx, and when there are no rows, when the two files differ in rows, or
// when a label is not in 0 ... num_classes - 1.
data::LabelledRows read_labelled_idx(const std::filesystem::path& images,
                                     const std::filesystem::path& labels, std::size_t num_classes,
                                     std::string name);

}  // namespace lockstep::datasets
