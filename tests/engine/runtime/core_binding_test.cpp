// Which cores the ranks of a host, and their threads, get.
#include "engine/runtime/cpu_cores.h"

#include <gmock/gmock.h>

namespace lockstep::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(CoreBinding, CutsTheAllowedCoresIntoParts) {
  const std::vector<int> cores = {0, 1, 2, 3, 8};
  EXPECT_THAT(part_of_cores(cores, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(part_of_cores(cores, 1, 2), ElementsAre(2, 3, 8));
  EXPECT_THAT(part_of_cores(cores, 0, 1), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(part_of_cores(cores, 4, 5), ElementsAre(8));
  EXPECT_THAT(part_of_cores({4, 5}, 1, 3), IsEmpty()) << "fewer cores than ranks";
}

}  // namespace
}  // namespace lockstep::runtime
