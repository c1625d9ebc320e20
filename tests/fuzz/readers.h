// All that reads a file which a user, a download or another process wrote. A new one belongs here,
// with a corpus in tests/fuzz/corpus.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep::testing {

struct FileReader {
  std::string_view name;

  // Reads a file, and looks at each value that came out of it. Throws Error for a file that is
  // refused, std::logic_error for data that cannot be what the file said.
  void (*read)(const std::filesystem::path& path);
};

// REQUIRES: one of the names.
const FileReader& file_reader(std::string_view name);

// Reads damaged bytes; path is where they stand. Returns whether they were accepted.
// Throws std::logic_error when neither valid data nor one clear line about the file came out.
bool survives(const FileReader& reader, const std::filesystem::path& path);

}  // namespace lockstep::testing
