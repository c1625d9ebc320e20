// What a fuzzer calls: any bytes, as the meeting file by which the ranks of a job find each other.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "engine/launch/private_file.h"
#include "tests/support/temp_folder.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t num_bytes) {
  static const lockstep::testing::TempFolder folder;
  static const std::filesystem::path path = folder / "meet";
  lockstep::testing::write_text(path,
                                std::string_view(reinterpret_cast<const char*>(input), num_bytes));
  ::chmod(path.c_str(), 0600);
  try {
    const auto place = lockstep::launch::read_meeting_file(path);
    if (place && (place->port < 1 || place->port > 65535 || place->host.empty())) std::abort();
  } catch (const lockstep::Error&) {
    return 0;  // empty, or too large
  }
  return 0;
}
