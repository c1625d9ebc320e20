#include "engine/comm/comm_errors.h"

#include <fmt/format.h>

namespace lockstep::comm {
namespace {

constexpr const char* kAbort = "abort";

template <typename... Args>
Error late_error(const RankWait& wait, fmt::format_string<Args...> end, Args&&... args) {
  return {ErrorCode::Timeout, name_of(wait.call.operation),
          fmt::format("rank {} waited {} s in {}", wait.rank, wait.timeout_seconds,
                      to_string(wait.call)) +
              fmt::format(end, std::forward<Args>(args)...)};
}

template <typename... Args>
Error comm_error(std::string_view operation, fmt::format_string<Args...> text, Args&&... args) {
  return {ErrorCode::Comm, operation, fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace

Error RankWait::late(std::string_view missing) const {
  if (call.operation == Operation::recv) {
    return late_error(*this, " for a message that rank {} has not sent", peer);
  }
  if (!missing.empty()) return late_error(*this, ": {}", missing);
  return late_error(*this, " for rank {}, which has called it too but does not go on", peer);
}

Error RankWait::late_over(std::string_view link) const {
  return late_error(*this,
                    " for a message of rank {} that is still on its way over the simulated link "
                    "({})",
                    peer, link);
}

Error RankWait::left() const {
  return comm_error(name_of(call.operation),
                    "rank {} left the group while rank {} waits for it in {}", peer, rank,
                    to_string(call));
}

Error RankWait::died(int process) const {
  return comm_error(name_of(call.operation),
                    "rank {} (process {}) died while rank {} waits for it in {}", peer, process,
                    rank, to_string(call));
}

Error aborted_by(int rank, std::string_view why) {
  return comm_error(kAbort, "rank {} aborted the group: {}", rank, why);
}

bool is_abort(const std::exception& error) {
  const auto* told = dynamic_cast<const Error*>(&error);
  return told != nullptr && told->operation() == kAbort;
}

Error failed_in(const CallHeader& call, int rank, const Error& error) {
  return {error.code(), name_of(call.operation),
          fmt::format("rank {} failed in {}: {}", rank, to_string(call), error.what())};
}

std::string missing_rank(int rank, const CallHeader& last_call) {
  return fmt::format("rank {} is missing (its last call: {})", rank, to_string(last_call));
}

void add_to_list(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

std::string encode(const Error& error, std::size_t max_bytes) {
  std::string bytes(1, static_cast<char>(error.code()));
  bytes.append(error.operation()).append(1, '\0').append(error.message());
  return bytes.substr(0, max_bytes);
}

Error decode_error(std::string_view bytes) {
  const std::size_t zero = bytes.find('\0', 1);
  if (zero == bytes.npos ||
      static_cast<unsigned char>(bytes[0]) > static_cast<unsigned>(ErrorCode::Numeric)) {
    return {ErrorCode::Comm, "collective", "a rank failed, and its message is unreadable"};
  }
  return {static_cast<ErrorCode>(bytes[0]), bytes.substr(1, zero - 1), bytes.substr(zero + 1)};
}

}  // namespace lockstep::comm
