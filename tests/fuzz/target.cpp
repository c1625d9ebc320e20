// The fuzzer's entry point takes any bytes as a file of the reader that LOCKSTEP_FUZZED_READER
// names.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/fuzz/readers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t num_bytes) {
  static const int file = ::memfd_create("fuzzed", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes, num_bytes, 0) != static_cast<ssize_t>(num_bytes)) {
    throw std::runtime_error("cannot write the file");
  }
  static const char* const reader = std::getenv("LOCKSTEP_FUZZED_READER");
  if (reader == nullptr) throw std::runtime_error("LOCKSTEP_FUZZED_READER names no reader");
  lockstep::testing::survives(lockstep::testing::file_reader(reader), path);
  return 0;
}
