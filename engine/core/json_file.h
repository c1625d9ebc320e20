// Reads JSON files that users wrote. Errors name the file and the field.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

// A JSON file that a user gave. Each field is checked before use: a missing field, or one with an
// impossible value, is an Error{Io} that names the file and the field.
class JsonFile;

// One object of the file: a handle, which the file must outlive.
class JsonFields {
 public:
  // place: such as "rows[3]"; empty for the whole file. Throws unless it is an object.
  JsonFields(const JsonFile& file, const nlohmann::json& object, std::string place);

  bool has(const char* name) const;  // and it is not null
  JsonFields object(const char* name) const;
  std::vector<JsonFields> objects(const char* name) const;  // members of a list
  std::vector<std::string> names() const;                   // all members' names, sorted
  // Throws at the first member that is not one of these.
  void require_only(const std::vector<std::string>& known) const;
  // The raw value; nullptr if it is missing.
  const nlohmann::json* find(std::string_view name) const;

  std::string text(const char* name) const;
  std::string text_or_empty(const char* name) const;
  std::vector<std::string> texts(const char* name) const;  // empty if it is missing
  // From 0 to 1e30: no real quantity comes near, and results made of such numbers stay finite.
  double number(const char* name) const;
  std::optional<double> optional_number(const char* name) const;
  std::vector<double> numbers(const char* name) const;  // empty if it is missing
  double positive(const char* name) const;              // the same, but not 0
  // From 1 to a million million.
  std::size_t count(const char* name) const;
  std::size_t count_or(const char* name, std::size_t missing) const;
  std::optional<bool> optional_flag(const char* name) const;

  // "'run.json': expected rows[3].kind to be ..., found ...".
  [[noreturn]] void refuse(const char* name, std::string_view expected) const;
  // "'run.json', rows[3].kind: what"; the place only where `what` doesn't name it.
  [[noreturn]] void fail_at(std::string_view name, std::string_view what) const;

 private:
  std::string place_of(std::string_view name) const;
  // The value of that name. Refuses a missing or wrong one.
  template <typename IsRight>
  const nlohmann::json& checked(const char* name, IsRight is_right,
                                std::string_view expected) const;
  template <typename T, typename IsRight>
  std::vector<T> list_of(const char* name, IsRight is_right, std::string_view expected) const;

  const JsonFile* file_;
  const nlohmann::json* object_;
  std::string place_;
};

class JsonFile {
 public:
  // name stands for the text in errors, operation is their tag; it must outlive the object.
  // Throws Error{Io} for a text that is not JSON; if the text ends too early, it says that it is
  // truncated.
  JsonFile(std::string_view name, const std::string& text, std::string_view operation);
  // Reads the file. Throws what read_text_file() throws, too.
  JsonFile(const std::filesystem::path& path, std::string_view operation);
  ~JsonFile();
  JsonFile(const JsonFile&) = delete;
  JsonFile& operator=(const JsonFile&) = delete;

  const nlohmann::json& json() const { return *json_; }  // any value
  JsonFields fields() const { return {*this, *json_, ""}; }

  // "'run.json', rows[3].kind: what"; the place only where `what` doesn't name it.
  [[noreturn]] void fail_at(std::string_view place, std::string_view what) const;

 private:
  std::string name_;
  std::string_view operation_;
  std::unique_ptr<nlohmann::json> json_;
};

}  // namespace lockstep
