#include "engine/launch/init_method.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace lockstep::launch {
namespace {

TEST(InitMethod, ReadsEnvTcpAndFile) {
  EXPECT_EQ(parse_init_method("env://").kind, InitMethod::Kind::env);
  const InitMethod tcp = parse_init_method("tcp://10.1.1.20:23456");
  EXPECT_EQ(tcp.kind, InitMethod::Kind::tcp);
  EXPECT_EQ(tcp.host, "10.1.1.20");
  EXPECT_EQ(tcp.port, 23456);
  EXPECT_EQ(parse_init_method("tcp://[::1]:29500").host, "::1");
  const InitMethod file = parse_init_method("file:///tmp/meet");
  EXPECT_EQ(file.kind, InitMethod::Kind::file);
  EXPECT_EQ(file.path, "/tmp/meet");
}

TEST(InitMethod, RefusesTheRest) {
  for (const char* text :
       {"", "env", "tcp://", "tcp://host", "tcp://host:", "tcp://host:0", "tcp://:1",
        "tcp://host:70000", "tcp://[::1", "tcp://[::1]29500", "file://", "http://x:1"}) {
    testing::expect_error(ErrorCode::Usage, "[init method]", [&] { parse_init_method(text); });
  }
}

TEST(Endpoint, TakesTheDefaultPortAndBareIpv6) {
  EXPECT_EQ(parse_endpoint("x", "host", 29500).port, 29500);
  EXPECT_EQ(parse_endpoint("x", "host:1", 29500).port, 1);
  EXPECT_EQ(parse_endpoint("x", "fe80::1", 29500).host, "fe80::1");
  EXPECT_EQ(parse_endpoint("x", "[fe80::1]", 29500).host, "fe80::1");
}

}  // namespace
}  // namespace lockstep::launch
