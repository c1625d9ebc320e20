#include "tools/ranks/temporary_folder.h"

#include <stdlib.h>

#include <filesystem>
#include <system_error>

#include "engine/core/error.h"

namespace lockstep::tools {

TemporaryFolder::TemporaryFolder(const char* operation)
    : path_((std::filesystem::temp_directory_path() / "lockstep_ranks_XXXXXX").string()) {
  require(::mkdtemp(path_.data()) != nullptr, ErrorCode::Io, operation,
          "cannot make a folder for what the ranks write in {}", path_);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep::tools
