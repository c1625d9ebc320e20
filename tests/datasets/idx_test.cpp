#include "datasets/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/datasets/idx_files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;
using ::testing::ElementsAre;

void expect_refused(std::string_view bytes, const std::string& words) {
  const TempFolder folder;
  write_text(folder / "broken-file", bytes);
  expect_error(ErrorCode::Io, words, [&] { read_idx(folder / "broken-file"); });
  expect_error(ErrorCode::Io, "broken-file", [&] { read_idx(folder / "broken-file"); });
}

TEST(Idx, ReadsAnyNumberOfDimensionsPlainAndGzipped) {
  const TempFolder folder;
  const std::vector<std::vector<std::uint32_t>> all_sizes = {{6}, {2, 3}, {1, 3, 2}, {2, 1, 1, 3}};
  for (const auto& sizes : all_sizes) {
    const std::string bytes = idx_bytes(sizes, "\x01\x02\x03\x04\x05\xff");
    write_text(folder / "plain", bytes);
    write_text(folder / "zipped", gzip_bytes(bytes));
    for (const char* name : {"plain", "zipped"}) {
      const IdxArray array = read_idx(folder / name);
      EXPECT_EQ(array.shape, Shape(std::vector<std::size_t>(sizes.begin(), sizes.end())));
      EXPECT_THAT(array.elements, ElementsAre(1, 2, 3, 4, 5, 255));
    }
  }
}

TEST(Idx, RefusesWhatIsNoIdxFile) {
  expect_refused("", "truncated");
  expect_refused("\x89PNG rubbish", "begins with 89 50 4e 47");
  expect_refused("<!DOCTYPE html>", "it is a web page");
  expect_refused("PK\x03\x04 rubbish", "it is a zip archive");
  expect_refused(gzip_bytes(gzip_bytes("rubbish")), "it is gzip inside gzip");
  expect_refused(std::string("\x01\x08\0\0\x02\0\0\0ab", 10), "its numbers are little-endian");
  expect_refused(std::string("\0\0\x08\x01\x02\0\0\0ab", 10), "little-endian or truncated");
  expect_refused(std::string("\0\0\x0d\x01\0\0\0\x01\x01\x02\x03\x04", 12), "IDX type 0x0d");
  expect_refused(std::string("\0\0\x08\0rest", 8), "has 0 dimensions");
  expect_refused(std::string("\0\0\x08\x07", 4) + std::string(40, '\0'), "has 7 dimensions");
}

TEST(Idx, RefusesATruncationAtEveryByte) {
  const std::string whole = idx_bytes({2, 3}, "abcdef");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    expect_refused(whole.substr(0, length), "truncated");
    expect_refused(gzip_bytes(whole.substr(0, length)), "truncated");
  }
}

TEST(Idx, RefusesTrailingBytes) {
  expect_refused(idx_bytes({2, 3}, "abcdefg"), "continues after its [2, 3] elements");
  expect_refused(gzip_bytes(idx_bytes({2, 3}, "abcdefg")), "continues after its [2, 3] elements");
}

TEST(Idx, RefusesImpossibleSizesBeforeTakingMemory) {
  expect_refused(idx_bytes({1u << 30, 1u << 30}, "abcd"), "more than the file can hold");
  expect_refused(idx_bytes({~0u, ~0u, ~0u}, ""), "more than the file can hold");
  expect_refused(gzip_bytes(idx_bytes({1u << 30, 1u << 30}, "abcd")),
                 "more than the file can hold");
}

class LabelledIdxFiles : public ::testing::Test {
 protected:
  data::LabelledRows read(std::string_view images, std::string_view labels) {
    write_text(folder_ / "images", images);
    write_text(folder_ / "labels", labels);
    return read_labelled_idx(folder_ / "images", folder_ / "labels", 10, "mnist");
  }
  void expect_labelled_refused(std::string_view images, std::string_view labels,
                               const std::string& words) {
    expect_error(ErrorCode::Io, words, [&] { read(images, labels); });
  }

 private:
  TempFolder folder_;
};

TEST_F(LabelledIdxFiles, JoinsImagesAndLabels) {
  const data::LabelledRows rows =
      read(idx_bytes({3, 1, 2}, "\x01\x02\x03\x04\x05\x06"), idx_bytes({3}, "\x09\x01\x04"));
  EXPECT_EQ(rows.name, "mnist");
  EXPECT_EQ(rows.num_rows(), 3u);
  EXPECT_EQ(rows.num_features, 2u);
  EXPECT_EQ(rows.num_classes, 10u);
  EXPECT_EQ(rows.row_shape, (Shape{1, 2}));
  EXPECT_EQ(rows.scale, 1.0 / 255);
  EXPECT_THAT(rows.labels, ElementsAre(9, 1, 4));
  EXPECT_THAT(rows.row(1), ElementsAre(3, 4));
}

TEST_F(LabelledIdxFiles, RefusesFilesThatDoNotBelongTogether) {
  const std::string images = idx_bytes({3, 1, 2}, "abcdef");
  const std::string labels(idx_bytes({3}, "\x09\x01\x04"));
  expect_labelled_refused(images, idx_bytes({2}, "\x01\x02"), "3 images but");
  expect_labelled_refused(labels, labels, "expected images");
  expect_labelled_refused(images, images, "expected labels");
  expect_labelled_refused(idx_bytes({0, 1, 2}, ""), idx_bytes({0}, ""), "expected images");
}

TEST_F(LabelledIdxFiles, NamesTheLargestLabelBeyondTheClasses) {
  expect_labelled_refused(idx_bytes({3, 1, 1}, "abc"), idx_bytes({3}, "\x09\x0a\x0b"),
                          "has the classes 0 to 9, so this is another data set of 12 classes");
}

}  // namespace
}  // namespace lockstep::datasets
