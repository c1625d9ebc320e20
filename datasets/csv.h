// Tables of numbers as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::datasets {

struct CsvRows {
  std::vector<float> features;       // [num_rows, num_features], row-major
  std::vector<std::int64_t> labels;  // [num_rows]: the last column
  std::size_t num_features = 0;

  std::size_t num_rows() const { return labels.size(); }
};

// Reads comma-separated numbers, one row a line, plain or gzipped; the last column is the label, a
// whole number that is not negative. Empty lines are skipped; a first line without a number is a
// header and is skipped too.
// Throws Error{Io} that names the file and the line: a field that is not a finite number, a line
// with another number of fields, fewer than two columns, no rows; and as ByteSource.
CsvRows read_csv(const std::filesystem::path& path);

}  // namespace lockstep::datasets
