#include "tests/tools/formats_doc.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace lockstep::testing {
namespace {

using nlohmann::json;

std::string kind_of(const json& value) {
  if (value.is_null()) return "null";
  if (value.is_string()) return "text";
  if (value.is_boolean()) return "yes/no";
  return "number";
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// The cells of "| a | b |". No cell of the document holds a '|'.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  for (std::size_t begin = 1; begin < line.size();) {
    const std::size_t end = line.find('|', begin);
    if (end == std::string::npos) break;
    cells.push_back(trimmed(line.substr(begin, end - begin)));
    begin = end + 1;
  }
  return cells;
}

// The fields that a path stands for: "a.{b,c}" is a.b and a.c.
std::vector<std::string> expand(const std::string& path) {
  const std::size_t open = path.find('{');
  if (open == std::string::npos) return {path};
  const std::size_t close = path.find('}', open);
  std::istringstream names(path.substr(open + 1, close - open - 1));
  std::vector<std::string> fields;
  for (std::string name; std::getline(names, name, ',');) {
    for (const std::string& field : expand(path.substr(0, open) + name + path.substr(close + 1))) {
      fields.push_back(field);
    }
  }
  return fields;
}

// Path and unit of the fields in a section.
std::map<std::string, std::string> documented_fields(const std::string& section) {
  std::ifstream file(LOCKSTEP_FORMATS);
  EXPECT_TRUE(file.good()) << LOCKSTEP_FORMATS;
  std::map<std::string, std::string> fields;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) inside = line.find("`" + section + "`") != std::string::npos;
    if (!inside || !line.starts_with("| `")) continue;
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_EQ(cells.size(), 3u) << line;
    if (cells.size() != 3) continue;
    EXPECT_FALSE(cells[1].empty()) << "no unit: " << line;
    EXPECT_FALSE(cells[2].empty()) << "no meaning: " << line;
    for (const std::string& path : expand(cells[0].substr(1, cells[0].size() - 2))) {
      EXPECT_TRUE(fields.emplace(path, cells[1]).second) << "documented twice: " << path;
    }
  }
  EXPECT_FALSE(fields.empty()) << "formats.md has no section `" << section << "`";
  return fields;
}

bool says(const std::string& unit, const std::string& word) {
  return unit.find(word) != std::string::npos;
}

std::string kind_of_unit(const std::string& unit) {
  if (unit.starts_with("text")) return "text";
  return unit.starts_with("yes/no") ? "yes/no" : "number";
}

}  // namespace

void collect_fields(const json& value, Fields& fields, const std::string& path) {
  if (value.is_object()) {
    for (const auto& [key, part] : value.items()) {
      collect_fields(part, fields, path.empty() ? key : path + "." + key);
    }
  } else if (value.is_array()) {
    for (const json& element : value) collect_fields(element, fields, path + "[]");
  } else {
    fields[path].insert(kind_of(value));
  }
}

void expect_documented(const std::string& section, const Fields& found) {
  const std::map<std::string, std::string> documented = documented_fields(section);
  for (const auto& [path, kinds] : found) {
    if (documented.count(path.substr(0, path.find('.')) + ".*") != 0) continue;
    const auto row = documented.find(path);
    if (row == documented.end()) {
      ADD_FAILURE() << "formats.md does not document `" << path << "` of `" << section << "`";
      continue;
    }
    for (const std::string& kind : kinds) {
      const bool is_said =
          kind == "null" ? says(row->second, "null") : kind == kind_of_unit(row->second);
      EXPECT_TRUE(is_said) << "`" << path << "` of `" << section << "` is documented as "
                           << row->second << " and holds " << kind;
    }
  }
  for (const auto& [path, unit] : documented) {
    EXPECT_TRUE(found.count(path) != 0 || says(unit, "optional") || path.ends_with(".*"))
        << "formats.md documents `" << path << "` of `" << section << "`, which no file has";
  }
}

}  // namespace lockstep::testing
