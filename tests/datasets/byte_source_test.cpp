#include "datasets/byte_source.h"

#include <gtest/gtest.h>

#include "engine/core/rng.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

// Reads to the end in pieces of the given size.
std::string read_all(const std::filesystem::path& path, std::size_t piece_bytes = 1000) {
  ByteSource source(path);
  std::string content;
  std::vector<std::uint8_t> piece(piece_bytes);
  while (true) {
    const std::size_t count = source.read(piece);
    content.append(piece.begin(), piece.begin() + static_cast<std::ptrdiff_t>(count));
    if (count < piece.size()) return content;
  }
}

// Hardly compressible, and longer than the reader's buffer.
std::string noise(std::size_t num_bytes) {
  Rng rng(1);
  std::string bytes;
  while (bytes.size() < num_bytes) bytes += static_cast<char>(rng.next_word());
  return bytes;
}

TEST(ByteSource, RecognisesGzipByContentNotByName) {
  const TempFolder folder;
  const std::string content = noise(700'000);
  write_text(folder / "plain.gz", content);
  write_text(folder / "zipped", gzip_bytes(content));
  EXPECT_EQ(read_all(folder / "plain.gz"), content);
  EXPECT_EQ(read_all(folder / "zipped"), content);
  EXPECT_EQ(read_all(folder / "zipped", 1'000'000), content);
}

TEST(ByteSource, ReportsGzipThatIsCutAnywhere) {
  const TempFolder folder;
  const std::string whole = gzip_bytes("some content that compresses a little, a little, a little");
  for (std::size_t length = 2; length < whole.size(); ++length) {
    write_text(folder / "cut", whole.substr(0, length));
    expect_error(ErrorCode::Io, "cut' is truncated", [&] { read_all(folder / "cut"); });
  }
}

TEST(ByteSource, ReportsGzipWithAChangedByte) {
  const TempFolder folder;
  const std::string content = noise(5'000);
  std::string bytes = gzip_bytes(content);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  write_text(folder / "changed", bytes);
  expect_error(ErrorCode::Io, "corrupt gzip", [&] { read_all(folder / "changed"); });
}

TEST(ByteSource, NamesTheMissingFile) {
  const TempFolder folder;
  expect_error(ErrorCode::Io, "missing", [&] { read_all(folder / "missing"); });
  expect_error(ErrorCode::Io, folder.path().string(), [&] { read_all(folder.path()); });
}

}  // namespace
}  // namespace lockstep::datasets
