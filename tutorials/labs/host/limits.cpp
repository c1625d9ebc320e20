#include "tutorials/labs/host/limits.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "engine/core/error.h"

namespace lab {
namespace {

void set_limit(__rlimit_resource resource, std::size_t value) {
  const rlimit limit{value, value};
  const int result = ::setrlimit(resource, &limit);
  lockstep::require(result == 0, lockstep::ErrorCode::Io, "lab_host", "cannot set a limit: {}",
                    std::strerror(errno));
}

}  // namespace

void set_limits(const Limits& limits) {
  set_limit(RLIMIT_CPU, limits.cpu_seconds);
  if (limits.memory_bytes > 0) set_limit(RLIMIT_AS, limits.memory_bytes);
  set_limit(RLIMIT_FSIZE, limits.file_bytes);
  set_limit(RLIMIT_NOFILE, limits.open_files);
  set_limit(RLIMIT_CORE, 0);
}

}  // namespace lab
