// A table with named columns in a CSV file, which knows on which line each of its rows stands.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// Of a row of a table of published figures.
inline constexpr std::size_t kMaxPublishedGpus = 1024;

class CsvTable {
 public:
  // Cells may be in double quotes ("" is a quote in them); empty lines are left out.
  // Throws Error{Io} that names the file and the line: no header, a column missing, a row with too
  // few or too many cells, a quote that does not end.
  explicit CsvTable(const std::string& path);

  bool has_column(std::string_view column) const;
  // REQUIRES that the file has these, else throws Error{Io} that names the first one missing.
  void require_columns(const std::vector<std::string>& columns) const;

  std::size_t num_rows() const { return rows_.size(); }
  const std::string& cell(std::size_t row, std::string_view column) const;

  // Empty for an empty cell. Throws Error{Io} unless it is a positive number.
  std::optional<double> number(std::size_t row, std::string_view column) const;

  // The same, of a cell that must not be empty.
  double needed_number(std::size_t row, std::string_view column) const;
  // The same, and a whole number of at most `most`.
  std::size_t count(std::size_t row, std::string_view column, std::size_t most) const;

  // "'file', line 12: what". row may be num_rows(): the header.
  [[noreturn]] void fail_at(std::size_t row, const std::string& what) const;

 private:
  struct Row {
    std::size_t line = 0;
    std::vector<std::string> cells;
  };
  void read(const std::string& text);

  std::string path_;
  Row header_;
  std::vector<Row> rows_;
};

}  // namespace lockstep::tools
