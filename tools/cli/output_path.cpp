#include "tools/cli/output_path.h"

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::tools {
namespace {

void require_writable(const OutputPath& output) {
  if (output.path == "-") {
    require(output.flag == "--json", ErrorCode::Usage, output.flag,
            "'-' is standard output, which only --json writes to; name a file");
    return;
  }
  try {
    check_writable(output.path);
  } catch (const Error& error) {
    // The flag says more than the operation "[save]" that found it out.
    throw Error(error.code(), output.flag, error.message());
  }
}

}  // namespace

void require_writable(const std::vector<OutputPath>& outputs) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const OutputPath& output = outputs[i];
    if (output.path.empty()) continue;
    require_writable(output);
    for (std::size_t k = 0; k < i && output.path != "-"; ++k) {
      const OutputPath& other = outputs[k];
      require(other.path.empty() || other.path == "-" || !is_same_file(output.path, other.path),
              ErrorCode::Usage, output.flag, "'{}' is also the file of {}; name two files",
              output.path, other.flag);
    }
  }
}

}  // namespace lockstep::tools
