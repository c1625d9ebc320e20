#include "engine/runtime/cpu_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/temp_folder.h"

namespace lockstep::runtime {
namespace {

using testing::TempFolder;
using testing::write_text;

constexpr pid_t kProcess = 4711;

TEST(ProcessStat, TakesAnyNameForOne) {
  const TempFolder proc;
  std::filesystem::create_directory(proc / "4711");
  write_text(proc / "4711/stat",
             "4711 (a) R 1\n) S 4700 4711 4711 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 0\n");
  EXPECT_EQ(parent_of(kProcess, proc.path()), 4700);
}

}  // namespace
}  // namespace lockstep::runtime
