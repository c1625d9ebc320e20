#include "engine/launch/error_file.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/launch/job_token.h"

namespace lockstep::launch {

using Json = nlohmann::ordered_json;

void write_error_file(const Environment& environment, std::string_view message) noexcept {
  try {
    const auto path = find_variable(environment, kErrorFileVariable);
    if (!path) return;
    const Json extra{{"py_callstack", message}, {"timestamp", std::to_string(std::time(nullptr))}};
    const Json content{{"message", {{"message", message}, {"extraInfo", extra}}}};
    std::ofstream(*path) << content.dump(-1, ' ', false, Json::error_handler_t::replace);
  } catch (const std::exception&) {
    return;  // it is said on stderr as well
  }
}

// torch also knows {"message": "..."}.
std::string read_error_file(const std::filesystem::path& path) noexcept {
  try {
    std::ifstream file(path);
    const Json content = Json::parse(file, nullptr, false);
    if (!content.is_object() || !content.contains("message")) return "";
    Json message = content.at("message");
    if (message.is_object()) message = message.value("message", "");
    if (!message.is_string()) return "";
    auto line = message.get<std::string>();
    std::ranges::replace(line, '\n', ' ');
    return line;
  } catch (const std::exception&) {
    return "";
  }
}

ErrorFolder::ErrorFolder() {
  std::error_code problem;
  const auto folder = std::filesystem::temp_directory_path(problem);
  path_ = (problem ? std::filesystem::path("/tmp") : folder) /
          fmt::format("lockstep-run-{}-{:.12}", ::getpid(), make_token());
}

bool ErrorFolder::make() const noexcept {
  return ::mkdir(path_.c_str(), 0700) == 0;
}

ErrorFolder::~ErrorFolder() {
  remove_error_folder(path_);
}

void remove_error_folder(const std::string& path) noexcept {
  std::error_code ignored;
  if (!path.empty()) std::filesystem::remove_all(path, ignored);
}

}  // namespace lockstep::launch
