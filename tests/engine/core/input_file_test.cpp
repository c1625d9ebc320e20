#include "engine/core/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep {
namespace {

using testing::expect_error;
using testing::TempFolder;
using testing::write_text;

TEST(InputFile, IsReadFrontToBackAndAgain) {
  const TempFolder folder;
  write_text(folder / "file", "abcdef");
  InputFile file(folder / "file", "test");
  EXPECT_EQ(file.num_bytes(), 6u);
  std::array<char, 4> bytes{};
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 4u);
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 2u);
  EXPECT_EQ(file.read(std::as_writable_bytes(std::span(bytes))), 0u);
  file.rewind();
  file.read_exactly(std::as_writable_bytes(std::span(bytes)));
  EXPECT_EQ(std::string_view(bytes.data(), 4), "abcd");
  expect_error(ErrorCode::Io, "ends before its data does",
               [&] { file.read_exactly(std::as_writable_bytes(std::span(bytes))); });
}

TEST(InputFile, IsNamedWhereItCannotBeRead) {
  const TempFolder folder;
  const auto open = [](const std::filesystem::path& path) { InputFile file(path, "test"); };
  expect_error(ErrorCode::Io, "[test] cannot open '", [&] { open(folder / "none"); });
  expect_error(ErrorCode::Io, "none': No such file", [&] { open(folder / "none"); });
  expect_error(ErrorCode::Io, "' is a folder", [&] { open(folder.path()); });
  expect_error(ErrorCode::Io, "'/dev/zero' is a pipe or a device", [&] { open("/dev/zero"); });
}

TEST(InputFile, DoesNotWaitForAPipesWriter) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  expect_error(ErrorCode::Io, "is a pipe", [&] { read_text_file(folder / "pipe", "test"); });
}

}  // namespace
}  // namespace lockstep
