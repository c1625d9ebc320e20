// The fuzzer's entry point takes any bytes as messages to the store, each behind its size. The
// first byte says whether they are hellos (even) or requests about the table (odd).
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "engine/comm/store/tcp_store.h"

namespace {

using namespace lockstep::comm;

void require_true(bool is_true) {
  if (!is_true) std::abort();
}

const Hello kExpected{kStorePurpose, "a token for the fuzzer"};

// Only the right one is let in, whatever rank it says.
void read_hello(std::string_view message) {
  const auto hello = decode_hello(message, kExpected);
  if (!hello) return;
  Hello same = kExpected;
  same.rank = hello->rank;
  same.process = hello->process;
  require_true(encode(same) == message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t num_bytes) {
  if (num_bytes == 0) return 0;
  MessageReader messages({reinterpret_cast<const char*>(input) + 1, num_bytes - 1});
  MemoryStore table;
  while (messages.is_valid() && !messages.is_complete()) {
    const std::string_view message = messages.text();
    if (!messages.is_valid()) return 0;
    if ((input[0] & 1) == 0) {
      read_hello(message);
      continue;
    }
    const auto answer = answer_request(table, message);
    require_true(!answer || answer->size() <= kMaxStoreMessageBytes);
  }
  return 0;
}
