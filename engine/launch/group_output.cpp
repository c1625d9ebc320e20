#include "engine/launch/group_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "engine/launch/error_file.h"

namespace lockstep::launch {
namespace {

constexpr std::size_t kMaxQuotedBytes = 400;

Streams streams_of(const std::vector<Streams>& by_local_rank, int local_rank) {
  const auto index = static_cast<std::size_t>(local_rank);
  return index < by_local_rank.size() ? by_local_rank[index] : Streams::none;
}

bool contains(Streams streams, int number) {
  return (static_cast<int>(streams) & number) != 0;
}

// Has a program of ours said with this line why it ends? It writes its error file before.
bool is_final(const Worker& worker, std::string_view line) {
  return line.starts_with("lockstep: [") && !worker.error_file.empty() &&
         read_error_file(worker.error_file) == line;
}

WorkerStream& stream_of(Worker& worker, int number) {
  return worker.streams[static_cast<std::size_t>(number)];
}

}  // namespace

void GroupOutput::open(Worker& worker, int restart_count) {
  const auto& shown = options_.console_filter;
  const bool is_shown = shown.empty() || std::ranges::count(shown, worker.local_rank) > 0;
  const Streams redirects = streams_of(options_.redirects, worker.local_rank);
  const Streams tee = streams_of(options_.tee, worker.local_rank);
  for (const int number : {1, 2}) {
    WorkerStream& stream = stream_of(worker, number);
    stream.on_console = is_shown && (contains(tee, number) || !contains(redirects, number));
    if (!contains(redirects, number) && !contains(tee, number)) continue;
    try {
      stream.log = LogFile(log_path(options_, restart_count, worker.local_rank, number));
    } catch (const Error& error) {
      if (restart_count == 0) throw;
      lose_log(worker, number, error.what());
    }
  }
}

void GroupOutput::read(Worker& worker, int number) {
  WorkerStream& stream = stream_of(worker, number);
  std::array<char, kMaxReadBytes> bytes;
  const ssize_t count = ::read(stream.pipe.descriptor(), bytes.data(), bytes.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close(worker, number);
  const std::string_view text(bytes.data(), static_cast<std::size_t>(count));
  if (stream.log.is_open()) {
    if (const int problem = stream.log.write(text)) {
      lose_log(worker, number,
               fmt::format("[run] cannot write the log {}: {}", stream.log.path(),
                           std::strerror(problem)));
    }
  }
  stream.lines.add(text, [&](std::string_view line) { print_line(worker, number, line); });
}

void GroupOutput::close(Worker& worker, int number) {
  WorkerStream& stream = stream_of(worker, number);
  stream.lines.finish([&](std::string_view line) { print_line(worker, number, line); });
  stream.pipe.close();
}

void GroupOutput::lose_log(Worker& worker, int number, std::string_view why) {
  say(fmt::format("{}; rank {} goes on, and its output goes to the console", why, worker.rank));
  stream_of(worker, number).on_console = true;
}

void GroupOutput::print_line(Worker& worker, int number, std::string_view line) {
  const bool is_blank = line.find_first_not_of(" \t\r") == std::string_view::npos;
  show_held_line(worker);  // it goes on, so that was no end
  if (number == STDERR_FILENO && is_final(worker, line)) {
    worker.last_error_line = worker.held_line = line;
    return;
  }
  show(worker, number, line);
  if (number == STDERR_FILENO && !is_blank)
    worker.last_error_line = line.substr(0, kMaxQuotedBytes);
}

void GroupOutput::show_held_line(Worker& worker) {
  if (!worker.held_line.empty()) show(worker, STDERR_FILENO, std::exchange(worker.held_line, {}));
}

void GroupOutput::show(Worker& worker, int number, std::string_view line) {
  if (!stream_of(worker, number).on_console) return;
  const bool is_plain = options_.lines == Lines::plain;
  console_.print(number, is_plain ? "" : fmt::format("[{}] ", worker.rank), line);
}

void GroupOutput::say(std::string_view message) {
  console_.print(STDERR_FILENO, "lockstep: ", message);
}

void GroupOutput::write_some() {
  const int descriptor = console_.waiting_for();
  const int problem = console_.write_some();
  if (problem == 0) return;
  if (problem == EPIPE) {
    reader_has_gone_ = reader_has_gone_ || descriptor == STDOUT_FILENO;
    return;
  }
  console_has_failed_ = true;
  say(fmt::format("[run] cannot write to {}: {}; the ranks go on",
                  descriptor == STDOUT_FILENO ? "standard output" : "standard error",
                  std::strerror(problem)));
}

}  // namespace lockstep::launch
