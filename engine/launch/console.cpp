#include "engine/launch/console.h"

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxLineBytes = 64 * 1024;

}  // namespace

void LineSplitter::add(std::string_view bytes, const OnLine& on_line) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t room = kMaxLineBytes - pending_.size();
    const std::size_t count = std::min({newline, bytes.size(), room});
    pending_ += bytes.substr(0, count);
    bytes.remove_prefix(count);
    const bool is_complete = bytes.starts_with('\n');
    if (is_complete) bytes.remove_prefix(1);
    if (!is_complete && pending_.size() < kMaxLineBytes) return;
    on_line(pending_);
    pending_.clear();
  }
}

void LineSplitter::finish(const OnLine& on_line) {
  if (!pending_.empty()) on_line(pending_);
  pending_.clear();
}

void Console::print(int descriptor, std::string_view prefix, std::string_view line) {
  if (is_broken_[descriptor]) return;
  std::string text(prefix);
  text.append(line).push_back('\n');
  num_bytes_ += text.size();
  lines_.push_back({descriptor, std::move(text)});
}

// Up to PIPE_BUF bytes at a time: that much a writable pipe takes at once, even if the descriptor
// is a blocking one (it belongs to others too, so it must stay as it is).
int Console::write_some() {
  const int descriptor = waiting_for();
  std::string together;
  for (const Line& line : lines_) {
    if (line.descriptor != descriptor || together.size() >= PIPE_BUF) break;
    together += &line == &lines_.front() ? line.text.substr(num_written_) : line.text;
  }
  const ssize_t count =
      ::write(descriptor, together.data(), std::min<std::size_t>(together.size(), PIPE_BUF));
  if (count < 0) {
    const int number = errno;
    if (number == EINTR || number == EAGAIN) return 0;
    drop_all_for(descriptor);
    return number;
  }
  num_bytes_ -= static_cast<std::size_t>(count);
  num_written_ += static_cast<std::size_t>(count);
  while (!lines_.empty() && num_written_ >= lines_.front().text.size()) {
    num_written_ -= lines_.front().text.size();
    lines_.pop_front();
  }
  return 0;
}

void Console::give_up() {
  for (bool& is_broken : is_broken_) is_broken = true;
  lines_.clear();
  num_written_ = 0;
  num_bytes_ = 0;
}

void Console::drop_all_for(int descriptor) {
  is_broken_[descriptor] = true;
  num_written_ = 0;
  std::erase_if(lines_, [&](const Line& line) { return line.descriptor == descriptor; });
  num_bytes_ = 0;
  for (const Line& line : lines_) num_bytes_ += line.text.size();
}

}  // namespace lockstep::launch
