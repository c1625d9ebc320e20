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

#include "datasets/byte_source.h"
#include "engine/core/shape.h"
#include "engine/data/labelled_rows.h"

namespace lockstep::datasets {

struct IdxArray {
  Shape shape;
  std::vector<std::uint8_t> elements;
};

// One file whose header has been read and checked, but no element.
class IdxFile {
 public:
  // gzip is recognised by content. Throws Error{Io} that names the file if it is missing, is
  // corrupt gzip, is not an IDX file of unsigned bytes, or promises more elements than it can hold.
  explicit IdxFile(const std::filesystem::path& path);

  const Shape& shape() const { return shape_; }
  const std::string& name() const { return source_.name(); }

  // Call it once. Memory grows with the elements that arrive, whatever the header promises.
  // Throws Error{Io} if the file is truncated, is corrupt gzip, or is longer than its sizes say.
  std::vector<std::uint8_t> read_elements();

 private:
  ByteSource source_;
  Shape shape_;
};

// Reads one file. Throws as IdxFile.
IdxArray read_idx(const std::filesystem::path& path);

// Images [rows, ...] and their labels [rows], whose headers have been read and compared.
class LabelledIdx {
 public:
  // Throws IdxFile's errors, and Error{Io} if there are no rows or the two files differ in rows.
  LabelledIdx(const std::filesystem::path& images, const std::filesystem::path& labels);

  // The shape of one row: [28, 28].
  Shape row_shape() const;
  const std::string& images_name() const { return images_.name(); }

  // Call it once. Pixels are scaled by 1/255.
  // Throws IdxFile's errors, and Error{Io} if a label is not in 0 ... num_classes - 1.
  data::LabelledRows read(std::size_t num_classes, std::string name);

 private:
  IdxFile images_;
  IdxFile labels_;
};

}  // namespace lockstep::datasets
