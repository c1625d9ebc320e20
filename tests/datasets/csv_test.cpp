#include "datasets/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;
using ::testing::ElementsAre;

CsvRows read(std::string_view text) {
  const TempFolder folder;
  write_text(folder / "table.csv", text);
  return read_csv(folder / "table.csv");
}

TEST(Csv, ReadsNumbersWithTheLabelInTheLastColumn) {
  const CsvRows rows = read("1.5,-2e3,0\n\n 4 ,5\t,12\r\n");
  EXPECT_EQ(rows.num_features, 2u);
  EXPECT_THAT(rows.features, ElementsAre(1.5f, -2000.0f, 4.0f, 5.0f));
  EXPECT_THAT(rows.labels, ElementsAre(0, 12));
}

TEST(Csv, SkipsAHeader) {
  EXPECT_THAT(read("width,height,class\n1,2,3").features, ElementsAre(1.0f, 2.0f));
}

TEST(Csv, NamesTheFileAndTheLine) {
  const auto expect_refused = [](std::string_view text, const std::string& words) {
    expect_error(ErrorCode::Io, words, [&] { read(text); });
  };
  expect_refused("1,2,3\n1,2\n", "table.csv' line 2: expected 3 fields, found 2");
  expect_refused("1,2,3\n\n1,x,3\n", "line 3: field 2 is 'x'");
  expect_refused("1,2,3\n1,,3\n", "line 2: field 2 is ''");
  expect_refused("1,nan,3\n", "line 1: field 2 is 'nan'");
  expect_refused("1,2,-3\n", "line 1: the label is '-3'");
  expect_refused("1,2,3.5\n", "line 1: the label is '3.5'");
  expect_refused("7\n", "line 1: expected at least 2 fields, found 1");
  expect_refused("a,b\n", "has no rows");
  expect_error(ErrorCode::Io, "cannot open 'no/such.csv'", [] { read_csv("no/such.csv"); });
  expect_error(ErrorCode::Io, "is a folder", [] { read_csv("/"); });
}

}  // namespace
}  // namespace lockstep::datasets
