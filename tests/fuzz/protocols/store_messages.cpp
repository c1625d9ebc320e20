// What a fuzzer calls: any bytes, as a client says them to the store. An odd first byte: the client
// has proved the token before, and they are requests.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "engine/comm/store/store_session.h"

namespace {

using namespace lockstep::comm;

const std::string kToken = "a token for the fuzzer";

void require_true(bool is_true) {
  if (!is_true) std::abort();
}

void prove(StoreSession& session) {
  const ClientHandshake handshake(kToken, kStorePurpose);
  session.receive(handshake.hello());
  Answer answer;
  std::ranges::copy(session.output(), answer.begin());
  session.was_sent(answer.size());
  session.receive(*handshake.proof(answer));
}

// As the server does it: never more than is wanted, and every answer is read.
void feed(StoreSession& session, std::span<const std::byte> bytes) {
  while (!bytes.empty() && !session.is_over()) {
    const std::size_t count = std::min(session.num_bytes_wanted(), bytes.size());
    if (count == 0) return;  // it waits for a key
    session.receive(bytes.first(count));
    bytes = bytes.subspan(count);
    require_true(session.output().size() <= kMaxStoreMessageBytes);
    session.was_sent(session.output().size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* input, std::size_t num_bytes) {
  if (num_bytes == 0) return 0;
  const auto bytes = std::as_bytes(std::span(input, num_bytes));
  const bool is_proven = (input[0] & 1) != 0;
  StoreState state;
  state.token = kToken;
  state.world_size = 4;
  StoreSession session(state);
  if (is_proven) prove(session);
  require_true(session.is_proven() == is_proven);
  feed(session, bytes.subspan(1));
  session.look_again(lockstep::runtime::Clock::now());
  session.connection_ended();
  require_true(is_proven || (state.table.num_keys() == 0 && !state.failure.is_set()));
  return 0;
}
