// Finds downloaded data sets for the tests that read real files.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>

namespace lockstep::datasets {

// The folder in the environment variable LOCKSTEP_TEST_DATA, or ../shared/data beside the sources;
// nullopt if neither holds the data set.
inline std::optional<std::filesystem::path> folder_with_real(const std::filesystem::path& name) {
  const char* from_environment = std::getenv("LOCKSTEP_TEST_DATA");
  const std::filesystem::path folder =
      from_environment != nullptr ? std::filesystem::path(from_environment)
                                  : std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "../shared/data";
  if (!std::filesystem::exists(folder / name)) return std::nullopt;
  return folder;
}

}  // namespace lockstep::datasets
