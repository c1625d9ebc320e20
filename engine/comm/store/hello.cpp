#include "engine/comm/store/hello.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

constexpr std::string_view kMagic = "lockstep 5";
constexpr std::size_t kSizeBytes = sizeof(std::uint32_t);

std::uint32_t size_in(std::string_view bytes) {
  std::uint32_t size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}
std::span<std::byte> writable(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

// Takes the same time wherever the texts differ, so that the delay says nothing about the token.
bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  volatile unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

}  // namespace

std::string make_token() {
  std::array<unsigned char, 32> random;
  // The system gives up to 256 bytes at once.
  const ssize_t found = getrandom(random.data(), random.size(), 0);
  const int number = errno;
  require(found == static_cast<ssize_t>(random.size()), ErrorCode::Io, "token",
          "the system gives no random bytes: {}", std::strerror(number));
  std::string text;
  for (const unsigned char byte : random) text += fmt::format("{:02x}", byte);
  return text;
}

void require_token(std::string_view token, std::string_view what) {
  require(token.size() >= kMinTokenBytes && token.size() <= kMaxTokenBytes, ErrorCode::Usage, what,
          "a job's token has {} ... {} bytes, so that nobody guesses it, found {}; make one by "
          "`openssl rand -hex 32`",
          kMinTokenBytes, kMaxTokenBytes, token.size());
}

MessageWriter& MessageWriter::number(std::int64_t value) {
  bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  return *this;
}

MessageWriter& MessageWriter::text(std::string_view value) {
  const auto size = checked_narrow<std::uint32_t>("store", "the length of a text", value.size());
  bytes_.append(reinterpret_cast<const char*>(&size), sizeof size).append(value);
  return *this;
}

std::string_view MessageReader::take(std::size_t num_bytes) {
  is_valid_ = is_valid_ && num_bytes <= rest_.size();
  if (!is_valid_) return {};
  const std::string_view taken = rest_.substr(0, num_bytes);
  rest_.remove_prefix(num_bytes);
  return taken;
}

std::int64_t MessageReader::number() {
  std::int64_t value = 0;
  const std::string_view bytes = take(sizeof value);
  if (!bytes.empty()) std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string_view MessageReader::text() {
  const std::string_view size = take(kSizeBytes);
  return size.empty() ? size : take(size_in(size));
}

IoResult send_message(const Socket& connection, std::string_view message,
                      runtime::Deadline deadline) {
  // One packet where it is short.
  return send_all(connection, bytes_of(MessageWriter().text(message).bytes()), deadline);
}

IoResult receive_message(const Socket& connection, std::size_t max_bytes, std::string& message,
                         runtime::Deadline deadline) {
  message.resize(kSizeBytes);
  const IoResult result = receive_all(connection, writable(message), deadline);
  if (result != IoResult::done) return result;
  const std::size_t size = size_in(message);
  if (size > max_bytes) return IoResult::closed;
  message.resize(size);
  return receive_all(connection, writable(message), deadline);
}

std::string encode(const Hello& hello) {
  return MessageWriter()
      .text(kMagic)
      .text(hello.purpose)
      .text(hello.token)
      .number(hello.rank)
      .text(hello.process)
      .bytes();
}

std::optional<Hello> decode_hello(std::string_view bytes, const Hello& expected) {
  MessageReader reader(bytes);
  const bool is_known = reader.text() == kMagic && reader.text() == expected.purpose &&
                        equal_in_constant_time(reader.text(), expected.token);
  const std::int64_t rank = reader.number();
  const std::string_view process = reader.text();
  if (!is_known || !reader.is_complete() || !std::in_range<int>(rank)) return std::nullopt;
  return Hello{expected.purpose, expected.token, static_cast<int>(rank), std::string(process)};
}

HelloListener::HelloListener(Socket listener, Hello expected, std::size_t num_expected)
    : listener_(std::move(listener)),
      expected_(std::move(expected)),
      max_pending_(kMaxStrangers + num_expected) {
  require_token(expected_.token);
}

void HelloListener::stop() {
  is_stopped_ = true;
  shutdown(listener_.descriptor(), SHUT_RDWR);  // wakes the poll() of accept()
}

std::optional<HelloListener::Visitor> HelloListener::accept(runtime::Deadline deadline) {
  std::vector<pollfd> descriptors;
  while (!is_stopped_) {
    for (auto pending = pending_.begin(); pending != pending_.end();) {
      const auto here = pending++;
      std::optional<Hello> hello;
      if (!here->has_news || read_hello(*here, hello)) continue;
      std::optional<Visitor> visitor;
      if (hello) visitor = Visitor{std::move(here->socket), *std::move(hello)};
      pending_.erase(here);
      num_pending_ = pending_.size();
      if (visitor) return visitor;
    }
    cut_strangers();
    if (runtime::has_passed(deadline)) break;
    descriptors.assign(1, {listener_.descriptor(), POLLIN, 0});
    for (const Pending& pending : pending_) {
      descriptors.push_back({pending.socket.descriptor(), POLLIN, 0});
    }
    runtime::Deadline until = deadline;
    if (!pending_.empty()) until = runtime::earlier(until, pending_.front().since + kHelloTime);
    poll(descriptors.data(), descriptors.size(), runtime::milliseconds_until(until));
    std::size_t next = 1;
    for (Pending& pending : pending_) pending.has_news = descriptors[next++].revents != 0;
    if (descriptors[0].revents != 0) accept_all();
  }
  return std::nullopt;
}

void HelloListener::accept_all() {
  constexpr int kMostAtOnce = 64;  // then those that have come have their turn
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket connection;
    const AcceptResult result = accept_from(listener_, connection);
    require(result != AcceptResult::no_descriptors, ErrorCode::Comm, "connect",
            "this process may not open more files; raise the limit (ulimit -n)");
    if (result == AcceptResult::none) return;
    pending_.push_back({std::move(connection), Clock::now(), "", true});
    num_pending_ = pending_.size();
  }
}

// False when the connection has said all that it may say: a hello, if it is valid, or nonsense.
bool HelloListener::read_hello(Pending& pending, std::optional<Hello>& hello) const {
  std::string& input = pending.input;
  for (;;) {
    std::size_t wanted = kSizeBytes;
    if (input.size() >= kSizeBytes) {
      const std::size_t size = size_in(input);
      if (size == 0 || size > kMaxHelloBytes) return false;
      wanted += size;
      if (input.size() == wanted) break;
    }
    const std::size_t before = input.size();
    input.resize(wanted);
    std::size_t received = 0;
    const IoResult result = receive_some(pending.socket, writable(input).subspan(before), received);
    input.resize(before + received);
    if (result != IoResult::done) return false;
    if (received == 0) return true;
  }
  hello = decode_hello(std::string_view(input).substr(kSizeBytes), expected_);
  return false;
}

// The oldest come first.
void HelloListener::cut_strangers() {
  const auto oldest = Clock::now() - kHelloTime;
  while (!pending_.empty() &&
         (pending_.front().since <= oldest || pending_.size() > max_pending_)) {
    pending_.front().socket.reset();
    pending_.pop_front();
  }
  num_pending_ = pending_.size();
}

}  // namespace lockstep::comm
