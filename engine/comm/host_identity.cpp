#include "engine/comm/host_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

namespace lockstep::comm {
namespace {

// 0 if the system has no such namespace.
unsigned long long inode_of(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 ? static_cast<unsigned long long>(status.st_ino) : 0;
}

}  // namespace

std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return fmt::format("{} {} user {} net {} pid {}", name.data(), boot, geteuid(),
                     inode_of("/proc/self/ns/net"), inode_of("/proc/self/ns/pid"));
}

std::string host_name_of(const std::string& identity) {
  return identity.substr(0, identity.find(' '));
}

std::string name_of_this_process() {
  return fmt::format("process {} on {}", getpid(), host_name_of(host_identity()));
}

}  // namespace lockstep::comm
