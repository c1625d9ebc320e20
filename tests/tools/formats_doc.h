// docs/formats.md beside the files that it describes.
//
// A section begins with a heading that names its schema, or several, in backticks; in its tables a
// row "| `rows[].step_seconds` | s | ... |" documents a field, and "`a.{b,c}`" two of them. Below
// `[]` stand the fields of all elements. The unit says what a value is: "text", "yes/no", else a
// number; "or null" and "optional" (a field that not every run has) are said there too. "`a.*`"
// stands for all fields of a, whatever they hold.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

namespace lockstep::testing {

// Fields by path, with every kind of value seen there ("text", "yes/no", "number", "null").
using Fields = std::map<std::string, std::set<std::string>>;

// Adds the fields of a file, or of a part of it below `path`.
void collect_fields(const nlohmann::json& value, Fields& fields, const std::string& path = "");

// Expects of the section of this name that it documents every field found, with the right kind of
// value, and that every field it documents was found, unless it is optional.
void expect_documented(const std::string& section, const Fields& found);

}  // namespace lockstep::testing
