#include "tools/report/run_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/json_file.h"

namespace lockstep::tools {
namespace {

namespace fs = std::filesystem;

// Of any version: the reader says of another one's what to do.
bool is_run_file(const fs::path& path, std::string_view operation) {
  const JsonFile file(path, operation);
  const nlohmann::json& json = file.json();
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string()) return false;
  return json["schema"].get<std::string>().starts_with("lockstep.run/");
}

std::vector<fs::path> json_files_in(const fs::path& folder, std::string_view operation) {
  std::vector<fs::path> files;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    std::error_code ignored;  // a link to nothing is no file
    const bool is_file = at->is_regular_file(ignored);
    if (is_file && at->path().extension() == ".json") files.push_back(at->path());
  }
  require(!problem, ErrorCode::Io, operation, "cannot read the folder '{}': {}", folder.string(),
          problem.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

FoundRuns find_runs(const std::vector<std::string>& paths, std::string_view operation) {
  FoundRuns found;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      found.paths.push_back(path);
      continue;
    }
    const std::size_t before = found.paths.size();
    for (const fs::path& file : json_files_in(path, operation)) {
      auto& list = is_run_file(file, operation) ? found.paths : found.left_out;
      list.push_back(file.string());
    }
    require(found.paths.size() > before, ErrorCode::Io, operation,
            "no run file in the folder '{}'; train and compare write one with --json {}", path,
            (fs::path(path) / "NAME.json").string());
  }
  return found;
}

}  // namespace lockstep::tools
