#include "engine/comm/transport/tcp/pending_connection.h"

#include <algorithm>
#include <array>

namespace lockstep::comm {

void PendingConnection::receive() {
  while (!is_gone && socket.is_open()) {
    const std::size_t wanted = greeting.num_bytes_wanted();
    if (wanted == 0) return;
    std::array<std::byte, 256> buffer;
    std::size_t received = 0;
    const IoResult result = receive_some(
        socket, std::span(buffer).first(std::min(buffer.size(), wanted - input.size())), received);
    if (result != IoResult::done) is_gone = true;
    if (result == IoResult::reset) is_cut = true;
    if (received == 0) return;
    input.insert(input.end(), buffer.begin(),
                 buffer.begin() + static_cast<std::ptrdiff_t>(received));
    if (input.size() < wanted) continue;
    greeting.receive(input);
    input.clear();
    send_output();
    if (greeting.has_failed()) is_gone = true;
  }
}

// A few hundred bytes on a new connection: the kernel takes them all, or something is wrong.
void PendingConnection::send_output() {
  const std::vector<std::byte> output = greeting.take_output();
  if (output.empty()) return;
  const auto sent = send_some(socket, output);
  if (!sent || *sent != output.size()) is_gone = is_cut = true;
}

}  // namespace lockstep::comm
