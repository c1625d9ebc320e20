// A JSON file that a user gave: whatever is wrong in it is an error that names the file and the
// line.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::predict {

// Values are named by their JSON pointer: "/links/3/gb_per_s".
class JsonFile {
 public:
  // name is what errors call the text, operation their tag; it must outlive the object.
  // Throws Error{Io} for a text that is not JSON, or not an object.
  JsonFile(std::string name, std::string text, std::string_view operation);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const nlohmann::json& root() const { return *root_; }
  const std::string& name() const { return name_; }
  bool has(const std::string& pointer) const;  // and it is not null

  // Throw Error{Io} when the value is missing or of another kind.
  std::string text(const std::string& pointer) const;
  double number(const std::string& pointer) const;    // finite and at least 0
  double positive(const std::string& pointer) const;  // finite and above 0
  std::size_t count(const std::string& pointer) const;
  std::size_t num_elements(const std::string& pointer) const;  // of a list

  // "'name', line 12: what". The line is that of the value, or of the nearest one around it.
  [[noreturn]] void fail_at(const std::string& pointer, const std::string& what) const;

 private:
  const nlohmann::json& at(const std::string& pointer) const;

  std::string name_;
  std::string_view operation_;
  std::unique_ptr<nlohmann::json> root_;
  std::map<std::string, std::size_t> lines_;
};

// The line, from 1, on which each value of a JSON text begins, by its pointer; values nested deeper
// than eight levels are left out. REQUIRES: the text is JSON.
std::map<std::string, std::size_t> lines_of_values(std::string_view text);

}  // namespace lockstep::predict
