// Errors as bytes.
#include "engine/comm/comm_errors.h"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::comm {
namespace {

void expect_same(const Error& found, const Error& expected) {
  EXPECT_EQ(found.code(), expected.code());
  EXPECT_EQ(found.operation(), expected.operation());
  EXPECT_EQ(found.message(), expected.message());
}

void expect_unreadable(std::string_view bytes) {
  const Error error = decode_error(bytes);
  EXPECT_EQ(error.code(), ErrorCode::Comm);
  EXPECT_EQ(error.message(), "a rank failed, and its message is unreadable");
}

TEST(ErrorBytes, AnErrorArrivesAsItWasSent) {
  for (const Error& error :
       {Error(ErrorCode::Shape, "all_reduce", "rank 2 is missing (its last call: nothing)"),
        Error(ErrorCode::Numeric, "a [b] c", "d] [e"), Error(ErrorCode::Timeout, "", ""),
        Error(ErrorCode::Io, std::string(300, 'o'), std::string(70'000, 'm'))}) {
    expect_same(decode_error(encode(error, 1 << 20)), error);
  }
}

TEST(ErrorBytes, BytesThatAreNoErrorSaySo) {
  const std::string good = encode(Error(ErrorCode::Comm, "join", ""), 100);
  for (std::size_t size = 0; size < good.size(); ++size) {
    expect_unreadable(std::string_view(good).substr(0, size));
  }
  for (const char code : {'\x0a', '\x7f', '\xff'}) expect_unreadable(code + good.substr(1));
}

}  // namespace
}  // namespace lockstep::comm
