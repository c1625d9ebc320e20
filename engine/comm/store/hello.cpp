#include "engine/comm/store/hello.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>

#include "engine/core/error.h"
#include "engine/core/shape.h"

namespace lockstep::comm {
namespace {

static_assert(std::endian::native == std::endian::little, "sizes are copied as they lie");

constexpr std::string_view kMagic = "lockstep 6";
constexpr std::size_t kMinTokenBytes = 16;
constexpr std::size_t kMaxTokenBytes = 256;
constexpr std::size_t kMaxHelloBytes = 2048;
// A connection without a hello is cut after this time.
constexpr std::chrono::seconds kHelloTime{2};

using Size = std::uint32_t;

Size size_in(std::string_view bytes) {
  Size size = 0;
  std::memcpy(&size, bytes.data(), sizeof size);
  return size;
}

void append(std::string& bytes, std::string_view text) {
  const auto size = checked_narrow<Size>("store", "the length of a text", text.size());
  bytes.append(reinterpret_cast<const char*>(&size), sizeof size).append(text);
}

std::span<std::byte> writable(std::string& text) {
  return std::as_writable_bytes(std::span(text));
}

// 0 if the system has no such namespace.
unsigned long long inode_of(const char* path) {
  struct stat status {};
  return stat(path, &status) == 0 ? static_cast<unsigned long long>(status.st_ino) : 0;
}

}  // namespace

std::string host_identity() {
  std::string boot = "unknown";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return fmt::format("{} {} user {} net {} pid {}", name.data(), boot, geteuid(),
                     inode_of("/proc/self/ns/net"), inode_of("/proc/self/ns/pid"));
}

std::string host_name_of(const std::string& identity) {
  return identity.substr(0, identity.find(' '));
}

std::string name_of_this_process() {
  return fmt::format("process {} on {}", getpid(), host_name_of(host_identity()));
}

void require_token(std::string_view token, std::string_view what) {
  require(token.size() >= kMinTokenBytes && token.size() <= kMaxTokenBytes, ErrorCode::Usage, what,
          "a job's token needs {} to {} bytes, so that it cannot be guessed, found {}; make one by "
          "`openssl rand -hex 32`",
          kMinTokenBytes, kMaxTokenBytes, token.size());
}

std::string encode(const Message& message) {
  std::string texts;
  for (const std::string& text : message) append(texts, text);
  std::string bytes;
  append(bytes, texts);
  return bytes;
}

std::optional<Message> decode_message(std::string_view bytes) {
  Message message;
  while (!bytes.empty()) {
    if (bytes.size() < sizeof(Size)) return std::nullopt;
    const std::size_t size = size_in(bytes);
    bytes.remove_prefix(sizeof(Size));
    if (bytes.size() < size) return std::nullopt;
    message.emplace_back(bytes.substr(0, size));
    bytes.remove_prefix(size);
  }
  return message;
}

IoResult send_message(const Socket& connection, const Message& message,
                      runtime::Deadline deadline) {
  const std::string bytes = encode(message);
  return send_all(connection, std::as_bytes(std::span(bytes)), deadline);
}

IoResult receive_message(const Socket& connection, std::size_t max_bytes, Message& message,
                         runtime::Deadline deadline) {
  std::string bytes(sizeof(Size), '\0');
  IoResult result = receive_all(connection, writable(bytes), deadline);
  if (result != IoResult::done) return result;
  if (size_in(bytes) > max_bytes) return IoResult::closed;
  bytes.resize(size_in(bytes));
  result = receive_all(connection, writable(bytes), deadline);
  if (result != IoResult::done) return result;
  auto found = decode_message(bytes);
  if (!found) return IoResult::closed;
  message = *std::move(found);
  return IoResult::done;
}

Message to_message(const Hello& hello) {
  return {std::string(kMagic), hello.purpose, hello.token, std::to_string(hello.rank),
          hello.process};
}

// Takes as long wherever the two differ, so that nobody finds a token letter by letter.
bool is_same_token(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  int difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

std::optional<Hello> to_hello(const Message& message, const Hello& expected) {
  if (message.size() != 5 || message[0] != kMagic || message[1] != expected.purpose ||
      !is_same_token(message[2], expected.token)) {
    return std::nullopt;
  }
  Hello hello{expected.purpose, expected.token, -1, message[4]};
  const char* const end = message[3].data() + message[3].size();
  const auto [rest, error] = std::from_chars(message[3].data(), end, hello.rank);
  return error == std::errc() && rest == end ? std::optional(hello) : std::nullopt;
}

std::optional<Hello> receive_hello(const Socket& connection, const Hello& expected,
                                   runtime::Deadline deadline) {
  Message message;
  const runtime::Deadline turn = runtime::earlier(deadline, runtime::Clock::now() + kHelloTime);
  const IoResult result = receive_message(connection, kMaxHelloBytes, message, turn);
  auto hello = result == IoResult::done ? to_hello(message, expected) : std::nullopt;
  if (result == IoResult::done && !hello) connection.shut_down();
  if (result != IoResult::done) connection.reset();
  return hello;
}

}  // namespace lockstep::comm
