// The fields of a JSON file that somebody gave, each looked at before it is believed: a field that
// is missing, or holds what it cannot, is an Error{Io} that names the file and the field.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::tools {

// One object of the file. A handle: file and JSON must outlive it.
class JsonFields {
 public:
  // where: the object's place in the file, such as "rows[3]"; empty for the whole.
  JsonFields(const nlohmann::ordered_json& object, std::string where, std::string file,
             std::string_view operation);

  bool has(const char* name) const;  // and is not null
  JsonFields object(const char* name) const;
  // Of an array of objects.
  std::vector<JsonFields> objects(const char* name) const;

  std::string text(const char* name) const;
  std::string text_or_empty(const char* name) const;
  std::vector<std::string> texts(const char* name) const;  // empty where it is missing
  double seconds(const char* name) const { return number(name); }
  // A finite number that is not negative.
  double number(const char* name) const;
  std::optional<double> optional_number(const char* name) const;
  std::vector<double> numbers(const char* name) const;  // empty where it is missing
  // From 1 to a million million.
  std::size_t count(const char* name) const;
  std::size_t count_or(const char* name, std::size_t missing) const;
  std::optional<bool> optional_flag(const char* name) const;

  const nlohmann::ordered_json& json() const { return *object_; }

  // Throws the error: "'run.json' has no ...".
  [[noreturn]] void refuse(const char* name, std::string_view expected) const;

 private:
  const nlohmann::ordered_json* find(const char* name) const;
  std::string place_of(const char* name) const;

  const nlohmann::ordered_json* object_;
  std::string where_;
  std::string file_;
  std::string_view operation_;
};

// The file's text as JSON. Throws Error{Io} that names file, line and column, and says where a file
// ends too early that it is truncated.
nlohmann::ordered_json parse_json_file(const std::filesystem::path& path,
                                       std::string_view operation);

}  // namespace lockstep::tools
