// Files as PyTorch 2.9 and 1.5 write them, by their first bytes.
#include "engine/checkpoint/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "engine/checkpoint/safetensors.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::checkpoint {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using ::testing::HasSubstr;

bool is_torch(const std::string& start) {
  return is_torch_file(std::as_bytes(std::span(start)));
}

// The first entry of a zip archive: no compression, a name, and padding up to 64 bytes.
std::string zip(const std::string& name) {
  std::string start("PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26);
  start += static_cast<char>(name.size());
  return start + std::string("\0\x12\0", 3) + name + "FB\x0e\0ZZZZZZZZZZZZZZ\x80\x02}q\0";
}

const std::string kLegacy("\x80\x02\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.", 22);

TEST(TorchFile, IsKnownByItsFirstBytes) {
  EXPECT_TRUE(is_torch(zip("model/data.pkl")));
  EXPECT_TRUE(is_torch(zip("archive/data.pkl")));
  EXPECT_TRUE(is_torch(kLegacy));
}

TEST(TorchFile, IsNoOtherArchiveOrPickle) {
  EXPECT_FALSE(is_torch(""));
  EXPECT_FALSE(is_torch("PK\x03\x04"));
  EXPECT_FALSE(is_torch(zip("word/document.xml")));
  EXPECT_FALSE(is_torch(kLegacy.substr(0, 10)));
  EXPECT_FALSE(is_torch(std::string("\x80\x04\x95\x10\0\0\0", 7)));
  EXPECT_FALSE(is_torch(std::string("\x40\0\0\0\0\0\0\0{\"a\":{\"dtype\"", 20)));
}

TEST(TorchFile, GivenForSafetensorsIsNamedWithItsConversion) {
  const TempFolder folder;
  for (const std::string& content : {zip("model/data.pkl"), kLegacy}) {
    const auto path = folder / "my model.pt";
    std::ofstream(path, std::ios::binary) << content;
    expect_error(ErrorCode::Io,
                 "my model.pt' was written by PyTorch's torch.save, whose files only",
                 [&] { read_safetensors(path); });
    expect_error(ErrorCode::Io, torch_file_conversion(path), [&] { read_safetensors(path); });
  }
}

TEST(TorchFile, ConversionQuotesTheNamesForAShell) {
  EXPECT_THAT(torch_file_conversion("my model.pt"),
              ::testing::EndsWith("\" 'my model.pt' 'my model.safetensors'"));
  EXPECT_THAT(torch_file_conversion("it's.bin"), HasSubstr("'it'\\''s.bin'"));
}

}  // namespace
}  // namespace lockstep::checkpoint
