#include "engine/runtime/physical_gpus.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/expect_error.h"

namespace lockstep::runtime {
namespace {

using lockstep::testing::expect_error;

TEST(VirtualDevices, AreWrittenAsGpusAndCounts) {
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

TEST(VirtualDevices, WordsThatMeanNothingAreNamed) {
  for (const char* text :
       {"", "cuda:", "cuda:0*", "cuda:0*0", "cuda:-1", "0*4", "cpu:0", "cuda:0*2*2", "cuda:0 *2",
        "cuda:0,", ",cuda:0", "cuda:99999999999", "CUDA:0"}) {
    expect_error(ErrorCode::Usage, "is not understood; write a GPU and how many logical devices",
                 [&] { parse_virtual_devices(text, 2); });
  }
  expect_error(ErrorCode::Usage, "'four' in 'cuda:0*2,four'",
               [] { parse_virtual_devices("cuda:0*2,four", 2); });
}

TEST(VirtualDevices, MissingOrTooManyGpusAreRefused) {
  const std::tuple<const char*, int, const char*> mistakes[] = {
      {"cuda:0,cuda:1*2", 1, "'cuda:1*2' names GPU 1, and this machine has only cuda:0"},
      {"cuda:9", 4, "names GPU 9, and this machine has cuda:0 to cuda:3"},
      {"cuda:0", 0, "this machine has none"},
      {"cuda:0*65", 1, "makes more than 64 logical devices"},
      {"cuda:0*33,cuda:1*32", 2, "makes more than 64 logical devices"},
  };
  for (const auto& [text, num_gpus, words] : mistakes) {
    expect_error(ErrorCode::Usage, words, [&] { parse_virtual_devices(text, num_gpus); });
  }
}

}  // namespace
}  // namespace lockstep::runtime
