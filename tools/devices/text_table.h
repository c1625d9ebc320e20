// Columns of text as wide as their widest cell.
#pragma once

#include <string>
#include <vector>

namespace lockstep::tools {

class TextTable {
 public:
  enum class Align { left, right };
  struct Column {
    std::string title;
    Align align = Align::left;
  };

  explicit TextTable(std::vector<Column> columns);

  // REQUIRES: a cell for each column. Width counts bytes: cells are ASCII.
  void add_row(std::vector<std::string> cells);

  // A line of titles and a line per row, each with a newline and without spaces at its end.
  std::string text() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace lockstep::tools
