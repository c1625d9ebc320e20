#include "engine/runtime/physical_gpus.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::runtime {
namespace {

using lockstep::testing::expect_error;

TEST(VirtualDevices, AreWrittenAsGpusAndHowManyDevicesEachOneIs) {
  const std::pair<const char*, std::vector<int>> table[] = {
      {"cuda:0", {0}},
      {"cuda:1", {1}},
      {"cuda:0*1", {0}},
      {"cuda:0*4", {0, 0, 0, 0}},
      {"cuda:0*2,cuda:1*2", {0, 0, 1, 1}},
      {"cuda:1,cuda:0", {1, 0}},
      {"cuda:0,cuda:2*2,cuda:0", {0, 2, 2, 0}},
  };
  for (const auto& [text, gpus] : table) EXPECT_EQ(parse_virtual_devices(text, 3), gpus) << text;
  EXPECT_EQ(parse_virtual_devices("cuda:0*64", 1).size(), 64u);
  EXPECT_EQ(parse_virtual_devices("cuda:0*32,cuda:1*32", 2).size(), 64u);
}

TEST(VirtualDevices, WordsThatMeanNothingAreNamedBesideAnExample) {
  for (const char* text : {"",
                           ",",
                           "cuda",
                           "cuda:",
                           "cuda:*2",
                           "cuda:0*",
                           "cuda:0*0",
                           "cuda:0*-1",
                           "cuda:-1",
                           "0*4",
                           "cpu:0",
                           "cuda:0*2*2",
                           "cuda:0 *2",
                           " cuda:0",
                           "cuda:0x2",
                           "cuda:0,",
                           ",cuda:0",
                           "cuda:0,,cuda:1",
                           "cuda:0*99999999999",
                           "cuda:99999999999",
                           "CUDA:0",
                           "cuda:0*2,four"}) {
    expect_error(ErrorCode::Usage, "is not understood; write a GPU and how many logical devices",
                 [&] { parse_virtual_devices(text, 2); });
  }
  expect_error(ErrorCode::Usage, "'four' in 'cuda:0*2,four'",
               [] { parse_virtual_devices("cuda:0*2,four", 2); });
}

TEST(VirtualDevices, AGpuThatIsNotThereIsToldFromThoseThatAre) {
  expect_error(ErrorCode::Usage, "'cuda:1*2' names GPU 1, and this machine has only cuda:0",
               [] { parse_virtual_devices("cuda:0,cuda:1*2", 1); });
  expect_error(ErrorCode::Usage, "names GPU 9, and this machine has cuda:0 to cuda:3",
               [] { parse_virtual_devices("cuda:9", 4); });
  expect_error(ErrorCode::Usage, "this machine has none",
               [] { parse_virtual_devices("cuda:0", 0); });
}

TEST(VirtualDevices, MoreThanSixtyFourAreRefused) {
  for (const char* text : {"cuda:0*65", "cuda:0*64,cuda:0", "cuda:0*33,cuda:1*32"}) {
    expect_error(ErrorCode::Usage, "makes more than 64 logical devices",
                 [&] { parse_virtual_devices(text, 2); });
  }
}

}  // namespace
}  // namespace lockstep::runtime
