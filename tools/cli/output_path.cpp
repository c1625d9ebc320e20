#include "tools/cli/output_path.h"

#include "engine/checkpoint/atomic_file.h"
#include "engine/core/error.h"

namespace lockstep::tools {

void require_writable(std::string_view flag, const std::string& path) {
  if (path.empty()) return;
  if (path == "-") {
    require(flag == "--json", ErrorCode::Usage, flag,
            "'-' is standard output, which only --json writes to; name a file");
    return;
  }
  try {
    checkpoint::check_writable(path);
  } catch (const Error& error) {
    // The flag says more than the operation "[save]" that found it out.
    const std::string_view message = error.what();
    throw Error(error.code(), flag, message.substr(message.find("] ") + 2));
  }
}

}  // namespace lockstep::tools
