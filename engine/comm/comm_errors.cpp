#include "engine/comm/comm_errors.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/comm/host_identity.h"

namespace lockstep::comm {
namespace {

constexpr const char* kAbort = "abort";
constexpr const char* kWasCutOff = "it was killed, or its host was cut off";
constexpr std::size_t kHeadBytes = 3;  // of an encoded error

Error late_error(const RankWait& wait, std::string_view end) {
  return {ErrorCode::Timeout, name_of(wait.call.operation),
          fmt::format("rank {} waited {} s in {}{}", wait.rank, wait.timeout_seconds,
                      to_string(wait.call), end)};
}

Error gone_error(const RankWait& wait, std::string_view how) {
  return {ErrorCode::Comm, name_of(wait.call.operation),
          fmt::format("{} while rank {} waits for it in {}", how, wait.rank, to_string(wait.call))};
}

std::size_t byte_at(std::string_view bytes, std::size_t index) {
  return static_cast<unsigned char>(bytes[index]);
}

}  // namespace

Error RankWait::late(std::string_view missing) const {
  if (call.operation == Operation::recv) {
    return late_error(*this, fmt::format(" for a message that rank {} has not sent", peer));
  }
  if (!missing.empty()) return late_error(*this, fmt::format(": {}", missing));
  return late_error(*this,
                    fmt::format(" for rank {}, which has called it too but does not go on", peer));
}

Error RankWait::late_on_another_host() const {
  return late_error(*this,
                    fmt::format(" for rank {} on another host, which does not answer", peer));
}

Error RankWait::late_over(std::string_view link) const {
  return late_error(*this,
                    fmt::format(" for a message of rank {} that is still on its way over the "
                                "modelled link ({})",
                                peer, link));
}

Error RankWait::left() const {
  return gone_error(*this, fmt::format("rank {} left the group", peer));
}

Error RankWait::died(int process) const {
  return gone_error(*this, fmt::format("rank {} (process {}) died", peer, process));
}

Error RankWait::found_bytes(std::size_t expected, std::size_t found) const {
  return {
      ErrorCode::Comm, name_of(call.operation),
      fmt::format("rank {} expected {} bytes from rank {}, found {}", rank, expected, peer, found)};
}

std::string missing_rank(int rank, const CallHeader& last_call) {
  return fmt::format("rank {} is missing (its last call: {})", rank, to_string(last_call));
}

Error left_before(const CallHeader& call, int rank, std::uint64_t num_collectives) {
  return {ErrorCode::Comm, name_of(call.operation),
          fmt::format("rank {} left the group after {} collectives, and {} needs it", rank,
                      num_collectives, to_string(call))};
}

Error lost_rank(int rank) {
  return {ErrorCode::Comm, "collective",
          fmt::format("rank {} is lost: its connection closed: {}", rank, kWasCutOff)};
}

Error garbled_rank(int rank) {
  return {ErrorCode::Comm, "collective",
          fmt::format("rank {} is lost: it sent bytes that are no frames", rank)};
}

Error ended_rank(int rank) {
  return {ErrorCode::Comm, "store",
          fmt::format("rank {} ended without leaving: {}", rank, kWasCutOff)};
}

std::string not_done(const CallHeader& call, double timeout_seconds) {
  return fmt::format("{} was not done within {} s", to_string(call), timeout_seconds);
}

Error not_done_yet(const CallHeader& call, double timeout_seconds) {
  return {ErrorCode::Timeout, name_of(call.operation),
          not_done(call, timeout_seconds) +
              "; it goes on, and its own time limit names who is missing"};
}

Error aborted_by(int rank, std::string_view why) {
  return {ErrorCode::Comm, kAbort, fmt::format("rank {} aborted the group: {}", rank, why)};
}

bool is_abort(const std::exception& error) {
  const auto* told = dynamic_cast<const Error*>(&error);
  return told != nullptr && told->operation() == kAbort;
}

void add_to_list(std::string& list, std::string_view item) {
  if (!list.empty()) list += ", ";
  list += item;
}

DuplicateRank duplicate_rank(std::string_view operation, int rank, std::string_view holder) {
  return {operation,
          fmt::format("rank {} is taken by {}, so {} cannot be it too; give each process its own "
                      "RANK, and groups that use one store names of their own",
                      rank, holder, name_of_this_process())};
}

std::string encode(const Error& error, std::size_t max_bytes) {
  const std::string_view operation =
      error.operation().substr(0, std::min<std::size_t>(max_bytes - kHeadBytes, UINT16_MAX));
  std::string bytes{static_cast<char>(error.code()), static_cast<char>(operation.size() & 0xff),
                    static_cast<char>(operation.size() >> 8)};
  bytes += operation;
  return bytes += error.message().substr(0, max_bytes - bytes.size());
}

Error decode_error(std::string_view bytes) {
  if (bytes.size() >= kHeadBytes &&
      byte_at(bytes, 0) <= static_cast<std::size_t>(ErrorCode::Numeric)) {
    const std::size_t operation_bytes = byte_at(bytes, 1) | byte_at(bytes, 2) << 8;
    const std::string_view text = bytes.substr(kHeadBytes);
    if (operation_bytes <= text.size()) {
      return {static_cast<ErrorCode>(bytes[0]), text.substr(0, operation_bytes),
              text.substr(operation_bytes)};
    }
  }
  return {ErrorCode::Comm, "collective", "a rank failed, and what it says of that is unreadable"};
}

bool FirstFailure::set(const Error& error) {
  const std::lock_guard lock(mutex_);
  if (error_) return false;
  error_.emplace(error);
  is_set_.store(true, std::memory_order_seq_cst);
  return true;
}

Error FirstFailure::error() const {
  const std::lock_guard lock(mutex_);
  return *error_;
}

}  // namespace lockstep::comm
