// The fuzzer's entry point takes any bytes as messages to the store, each behind its size. The
// first byte says whether they are hellos (even) or requests about the table (odd).
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "engine/comm/store/tcp_store.h"

namespace {

using namespace lockstep::comm;

void require_true(bool is_true) {
  if (!is_true) std::abort();
}

const Hello kExpected{kStorePurpose, "a token for the fuzzer"};

// Only the right one is let in, whatever rank it says.
void read_hello(const Message& message) {
  const auto hello = to_hello(message, kExpected);
  if (!hello) return;
  require_true(hello->purpose == kExpected.purpose && hello->token == kExpected.token);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t num_bytes) {
  if (num_bytes == 0) return 0;
  std::string_view rest(reinterpret_cast<const char*>(input) + 1, num_bytes - 1);
  MemoryStore table;
  while (rest.size() >= 4) {
    std::uint32_t size = 0;
    std::memcpy(&size, rest.data(), sizeof size);
    rest.remove_prefix(sizeof size);
    const auto message = decode_message(rest.substr(0, size));
    if (size > rest.size() || !message) return 0;
    rest.remove_prefix(size);
    if ((input[0] & 1) == 0) {
      read_hello(*message);
    } else {
      require_true(encode(answer_request(table, *message)).size() <= kMaxStoreMessageBytes);
    }
  }
  return 0;
}
