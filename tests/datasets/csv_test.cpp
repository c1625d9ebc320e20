#include "datasets/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/datasets/idx_files.h"
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

TEST(Csv, ReadsSeparatorsInQuotesAndNumbersAtTheEdgesOfFloat32) {
  const CsvRows quoted = read("\"width, in cm\",\"height; in cm\",class\n1,2,3\n4,5,6\n");
  EXPECT_THAT(quoted.features, ElementsAre(1.0f, 2.0f, 4.0f, 5.0f));
  const CsvRows edges = read("3.4028235e+38,1e-400,0\n-3.4028235e+38,-1e-46,1\n");
  const float most = std::numeric_limits<float>::max();
  EXPECT_THAT(edges.features, ElementsAre(most, 0.0f, -most, 0.0f));
  expect_error(ErrorCode::Io, "3.4028236e+38", [] { read("1,2,0\n3.4028236e+38,2,1\n"); });
}

TEST(Csv, SkipsAHeader) {
  EXPECT_THAT(read("width,height,class\n1,2,3").features, ElementsAre(1.0f, 2.0f));
}

TEST(Csv, FindsTheLabelByItsNameInTheHeader) {
  const CsvRows rows = read("Label,p0,p1\n7,0,255\n");
  EXPECT_THAT(rows.labels, ElementsAre(7));
  EXPECT_THAT(rows.features, ElementsAre(0.0f, 255.0f));
  expect_error(ErrorCode::Io, "line 1: 2 columns are named label, class, target or y",
               [] { read("label,p0,class\n7,0,2\n"); });
}

TEST(Csv, RefusesOneLabelForAllRows) {
  std::string label_first;
  for (int row = 0; row < 10; ++row) label_first += std::to_string(row) + ",12,0\n";
  expect_error(ErrorCode::Io, "the label (column 3 of 3) is 0 in every row",
               [&] { read(label_first); });
}

TEST(Csv, ReadsTheFormsThatOtherProgramsWrite) {
  for (const std::string_view text : {
           "\xEF\xBB\xBF"
           "1,2,3\n4,5,6\n",                          // a byte-order mark
           "\"1\",\"2\",\"3\"\n\"4\",\"5\",\"6\"\n",  // quoted fields
           "a;b;c\n1;2;3\n4;5;6\n",                   // semicolons
           "1\t2\t3\n4\t5\t6\n",                      // tabs
           "1,2,3\r4,5,6\r",                          // carriage returns alone
           "0,1,2\n1,2,3.0\n+4,+5,6.000e+00\n",       // counted columns, labels as floats
       }) {
    SCOPED_TRACE(text);
    const CsvRows rows = read(text);
    EXPECT_THAT(rows.features, ElementsAre(1.0f, 2.0f, 4.0f, 5.0f));
    EXPECT_THAT(rows.labels, ElementsAre(3, 6));
  }
}

TEST(Csv, ReadsGzipAndLinesLongerThanItsPieces) {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "1.5,";
  text += "7";
  write_text(folder / "wide.csv.gz", gzip_bytes(text + "\r\n" + text));
  const CsvRows rows = read_csv(folder / "wide.csv.gz");
  EXPECT_EQ(rows.num_features, 100'000u);
  EXPECT_THAT(rows.labels, ElementsAre(7, 7));
}

TEST(Csv, TakesADamagedFirstRowForNoHeader) {
  expect_error(ErrorCode::Io, "line 1: field 1 is '1x'", [] { read("1x,2,3\n4,5,6\n"); });
  expect_error(ErrorCode::Io, "line 1: field 1 is '1e999'", [] { read("1e999,2,3\n4,5,6\n"); });
}

TEST(Csv, ShowsOfALongOrUnprintableFieldWhatFitsALine) {
  expect_error(ErrorCode::Io, "field 1 is '" + std::string(80, 'y') + "...'",
               [] { read(std::string(1'000'000, 'y') + ",2,3\n"); });
  expect_error(ErrorCode::Io, "field 1 is 'a?[2J?'",
               [] { read(std::string_view("a\x1b[2J\0,2,3\n", 11)); });
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
