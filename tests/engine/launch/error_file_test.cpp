// The file in which a rank says why it ends, as torch writes and reads it.
#include "engine/launch/error_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "tests/support/temp_folder.h"

namespace lockstep::launch {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

std::string content_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ErrorFile, IsWhatTorchsRecordWritesAndReads) {
  const TempFolder folder;
  const auto path = folder / "error.json";
  write_error_file({{kErrorFileVariable, path.string()}}, "lockstep: [load] \"a\" is no file");
  EXPECT_THAT(content_of(path),
              HasSubstr(R"({"message":{"message":"lockstep: [load] \"a\" is no file",)"
                        R"("extraInfo":{"py_callstack":"lockstep: [load] \"a\" is no file",)"
                        R"("timestamp":")"));
  EXPECT_EQ(read_error_file(path), "lockstep: [load] \"a\" is no file");
}

TEST(ErrorFile, OfAPythonRankIsReadInOneLine) {
  const TempFolder folder;
  const auto path = folder / "error.json";
  std::ofstream(path) << R"({"message": {"message": "ValueError: a\nb", "extraInfo": )"
                         R"({"py_callstack": "Traceback ...", "timestamp": "1700000000"}}})";
  EXPECT_EQ(read_error_file(path), "ValueError: a b");
  std::ofstream(path) << R"({"message": "RuntimeError", "timestamp": 1700000000})";
  EXPECT_EQ(read_error_file(path), "RuntimeError");
}

TEST(ErrorFile, ThatIsNotThereOrNoneSaysNothing) {
  const TempFolder folder;
  const auto path = folder / "error.json";
  EXPECT_EQ(read_error_file(path), "");
  EXPECT_EQ(read_error_file(""), "");
  for (const char* content : {"", "{", "[1]", "{}", R"({"message": 1})", R"({"message": {}})"}) {
    std::ofstream(path) << content;
    EXPECT_EQ(read_error_file(path), "") << content;
  }
  write_error_file({}, "nobody asks");
  write_error_file({{kErrorFileVariable, (folder / "none" / "error.json").string()}}, "no folder");
}

TEST(ErrorFolder, GoesWithItsFiles) {
  std::filesystem::path path;
  {
    const ErrorFolder folder;
    path = folder.path();
    EXPECT_FALSE(std::filesystem::exists(path)) << "at first it has a name alone";
    EXPECT_TRUE(folder.make());
    EXPECT_TRUE(std::filesystem::is_directory(path));
    std::ofstream(path / "error.json") << "{}";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::launch
