#include "engine/runtime/cpu_use.h"
#include "engine/runtime/threads.h"

#include <gmock/gmock.h>

#include "tests/support/temp_folder.h"

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoreBinding, CutsTheAllowedCoresIntoParts) {
  const std::vector<int> cores = {0, 1, 2, 3, 8};
  EXPECT_THAT(part_of_cores(cores, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(part_of_cores(cores, 1, 2), ElementsAre(2, 3, 8));
  EXPECT_THAT(part_of_cores(cores, 4, 5), ElementsAre(8));
  EXPECT_THAT(part_of_cores({4, 5}, 1, 3), IsEmpty()) << "fewer cores than ranks";
}

TEST(ParentOf, TakesAnyNameOfAProcess) {
  const testing::TempFolder proc;
  std::filesystem::create_directory(proc / "4711");
  testing::write_text(
      proc / "4711/stat",
      "4711 (a) R 1\n) S 4700 4711 4711 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 98765 0\n");
  EXPECT_EQ(parent_of(4711, proc.path()), 4700);
}

// Ten seconds on two cores.
CoreUse use_of(double own, double total, double stolen, std::optional<double> waiting) {
  return {10, own, total, stolen, waiting};
}

TEST(IsDisturbed, ByOthersThatTookWantedCores) {
  struct Case {
    const char* description;
    CoreUse use;
    std::size_t wanted_cores;
    std::optional<bool> expected;
  };
  const Case cases[] = {
      {"alone", use_of(20, 20, 0, 0.0), 2, false},
      {"a housekeeper or two", use_of(20, 20.3, 0, 0.5), 2, false},
      {"time is counted in hundredths", use_of(20, 19.7, 0, 0.5), 2, false},
      {"no time at all", {}, 2, false},
      {"eight devices on two cores wait for each other", use_of(20, 20.2, 0, 55.0), 2, false},
      {"a busy process", use_of(13, 20, 0, 7.0), 2, true},
      {"a busy process, waiting unknown", use_of(13, 20, 0, std::nullopt), 2, true},
      {"another virtual machine", use_of(15, 15, 5, 2.0), 2, true},
      {"a process that leaves cores enough", use_of(10, 20, 0, 0.01), 1, false},
      {"a few ticks of a short row", {0.2, 0.3, 0.35, 0, 0.1}, 2, false},
      {"half of a short row", {0.2, 0.2, 0.4, 0, 0.1}, 2, true},
      {"the kernel tells nothing", use_of(20, 0, 0, 0.0), 2, std::nullopt},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(is_disturbed(c.use, c.wanted_cores), c.expected) << c.description;
  }
}

}  // namespace
}  // namespace lockstep::runtime
