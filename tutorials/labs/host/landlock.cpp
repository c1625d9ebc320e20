#include "tutorials/labs/host/landlock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "engine/core/error.h"
#include "engine/core/files.h"

// The kernel's own header may be older than the kernel, so what is used of it stands here.
// Source: https://docs.kernel.org/userspace-api/landlock.html
namespace lab {
namespace {

using lockstep::ErrorCode;
using lockstep::FileDescriptor;

constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr std::uint32_t kVersionFlag = 1;
constexpr int kPathBeneath = 1;

constexpr std::uint64_t kExecute = 1U << 0;
constexpr std::uint64_t kReadFile = 1U << 2;
constexpr std::uint64_t kReadFolder = 1U << 3;
constexpr std::uint64_t kWriteFile = 1U << 1;
constexpr std::uint64_t kTruncate = 1U << 14;
constexpr std::uint64_t kTcp = 3;  // bind and connect

struct Ruleset {
  std::uint64_t files = 0;
  std::uint64_t network = 0;
};

struct [[gnu::packed]] PathRule {
  std::uint64_t allowed = 0;
  std::int32_t folder = -1;
};

// All rights over files that this version of Landlock knows.
std::uint64_t all_rights(long version) {
  const int num_rights = version >= 5 ? 16 : version >= 3 ? 15 : version == 2 ? 14 : 13;
  return (std::uint64_t{1} << num_rights) - 1;
}

void allow(const FileDescriptor& ruleset, const std::string& path, std::uint64_t rights) {
  const FileDescriptor opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!opened.is_open()) return;
  struct stat status {};
  if (::fstat(opened.descriptor(), &status) != 0) return;
  if (!S_ISDIR(status.st_mode)) rights &= kExecute | kReadFile | kWriteFile | kTruncate;
  const PathRule rule{rights, opened.descriptor()};
  const long result = ::syscall(kAddRule, ruleset.descriptor(), kPathBeneath, &rule, 0);
  lockstep::require(result == 0, ErrorCode::Io, "lab_host", "Landlock refuses {}: {}", path,
                    std::strerror(errno));
}

}  // namespace

bool restrict_files(const std::vector<std::string>& readable,
                    const std::vector<std::string>& writable) {
  const long version = ::syscall(kCreateRuleset, nullptr, 0, kVersionFlag);
  if (version < 1) return false;
  const std::uint64_t all = all_rights(version);
  const Ruleset wanted{all, version >= 4 ? kTcp : 0};
  const std::size_t num_bytes = version >= 4 ? sizeof wanted : sizeof wanted.files;
  const FileDescriptor ruleset(static_cast<int>(::syscall(kCreateRuleset, &wanted, num_bytes, 0)));
  lockstep::require(ruleset.is_open(), ErrorCode::Io, "lab_host", "Landlock makes no rules: {}",
                    std::strerror(errno));
  for (const std::string& path : readable) {
    allow(ruleset, path, kExecute | kReadFile | kReadFolder);
  }
  for (const std::string& path : writable) allow(ruleset, path, all);
  const long result = ::syscall(kRestrictSelf, ruleset.descriptor(), 0);
  lockstep::require(result == 0, ErrorCode::Io, "lab_host", "Landlock restricts nothing: {}",
                    std::strerror(errno));
  return true;
}

}  // namespace lab
