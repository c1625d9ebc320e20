// Tables of numbers as text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

namespace lockstep::datasets {

struct CsvRows {
  std::vector<float> features;       // [num_rows, num_features], row-major
  std::vector<std::int64_t> labels;  // [num_rows]
  std::size_t num_features = 0;

  std::size_t num_rows() const { return labels.size(); }
};

// Reads numbers, one row per line, plain or gzipped, separated by commas, semicolons or tabs,
// whichever the first line has most of. Fields may be quoted.
//
// The label is a whole number that is not negative ("7", "7.0", "7e0"). It is in the column that
// the header calls label, class, target or y, else in the last one. The first line is a header if
// it holds no number, or counts the columns (0,1,2,...). Empty lines are skipped.
//
// Throws Error{Io} that names the file and the line: a field that is not a finite number, a line
// with another number of fields, fewer than two columns, a header with two columns for the label,
// no rows, or the same label in all of ten rows or more (then it is probably another column). Also
// throws ByteSource's errors.
CsvRows read_csv(const std::filesystem::path& path);

}  // namespace lockstep::datasets
