#include "engine/comm/link.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;

TEST(LinkSpec, HasALatencyAndABandwidthInTheUnitsOfTheField) {
  const LinkSpec link = parse_link("50us,1GB/s");
  EXPECT_DOUBLE_EQ(link.latency_seconds, 50e-6);
  EXPECT_DOUBLE_EQ(link.bytes_per_second, 1e9);
  EXPECT_DOUBLE_EQ(parse_link("1.5ms,200MB/s").latency_seconds, 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_link("2s,3KB/s").latency_seconds, 2);
  EXPECT_DOUBLE_EQ(parse_link("2s,3KB/s").bytes_per_second, 3e3);
  EXPECT_DOUBLE_EQ(parse_link("800ns,7B/s").latency_seconds, 8e-7);
  EXPECT_DOUBLE_EQ(parse_link("0us,7B/s").bytes_per_second, 7);
}

TEST(LinkSpec, BitsAreAnEighthOfBytes) {
  EXPECT_DOUBLE_EQ(parse_link("1us,100Gbit/s").bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(parse_link("1us,8Mbit/s").bytes_per_second, 1e6);
  EXPECT_DOUBLE_EQ(parse_link("1us,8Kbit/s").bytes_per_second, 1e3);
}

TEST(LinkSpec, IsShownAsItCouldHaveBeenWritten) {
  for (const char* text : {"50us,1GB/s", "1.5ms,200MB/s", "2s,3KB/s", "800ns,7B/s", "0s,1GB/s"}) {
    EXPECT_EQ(to_string(parse_link(text)), text);
  }
  EXPECT_EQ(to_string(parse_link("0us,100Gbit/s")), "0s,12.5GB/s");
}

TEST(LinkSpec, AnythingElseIsAnErrorThatSaysWhatWasExpected) {
  const auto refuses = [](const std::string& text, const std::string& why) {
    expect_error(
        ErrorCode::Usage,
        "[--link] expected LATENCY,BANDWIDTH such as 50us,1GB/s, found '" + text + "': " + why,
        [&] { parse_link(text); });
  };
  refuses("", "there is no comma");
  refuses("50us", "there is no comma");
  for (const char* latency : {"", "50", "us", "-1us", "50 us", "50min", "nanus", "infs", "1e7s"}) {
    refuses(std::string(latency) + ",1GB/s", "'" + std::string(latency) + "' is no latency in ns");
  }
  for (const char* bandwidth : {"", "1", "GB/s", "-1GB/s", "0GB/s", "0.5B/s", "1Gb/s", "1GB",
                                "1GB/s,", "infGB/s", "99999999999999GB/s"}) {
    refuses("50us," + std::string(bandwidth),
            "'" + std::string(bandwidth) + "' is no bandwidth of 1 B/s or more");
  }
}

}  // namespace
}  // namespace lockstep::comm
