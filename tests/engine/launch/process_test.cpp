#include "engine/launch/process.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

TEST(ErrorFile, IsWhatTorchsRecordWrites) {
  const testing::TempFolder folder;
  const auto path = folder / "error.json";
  write_error_file({{kErrorFileVariable, path.string()}}, "lockstep: [load] \"a\" is no file");
  const auto message = nlohmann::json::parse(testing::read_text(path)).at("message");
  EXPECT_EQ(message.at("message"), "lockstep: [load] \"a\" is no file");
  EXPECT_EQ(message.at("extraInfo").at("py_callstack"), message.at("message"));
  EXPECT_TRUE(message.at("extraInfo").at("timestamp").is_string());
}

TEST(ErrorFile, ThatCannotBeWrittenIsNoError) {
  const testing::TempFolder folder;
  write_error_file({}, "no launcher asks");
  write_error_file({{kErrorFileVariable, (folder / "none" / "error.json").string()}}, "no folder");
}

}  // namespace
}  // namespace lockstep::launch
