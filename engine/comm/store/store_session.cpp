#include "engine/comm/store/store_session.h"

#include <fmt/format.h>

#include <utility>

#include "engine/comm/comm_errors.h"
#include "engine/trace/span.h"

namespace lockstep::comm {
namespace {

using Message = std::vector<std::byte>;

constexpr std::size_t kMaxProcessName = 256;

Message ok() {
  return StoreWriter(StoreStatus::ok).finish();
}
Message absent() {
  return StoreWriter(StoreStatus::absent).finish();
}
Message ok(std::string_view value) {
  return StoreWriter(StoreStatus::ok).text(value).finish();
}

Message aborted(const StoreState& state) {
  return StoreWriter(StoreStatus::aborted)
      .text(encode(state.failure.error(), kMaxValueBytes))
      .finish();
}

runtime::Deadline deadline_in(std::int64_t milliseconds) {
  if (milliseconds < 0) return std::nullopt;
  return runtime::deadline_after(1e-3 * static_cast<double>(milliseconds));
}

}  // namespace

StoreSession::StoreSession(StoreState& state)
    : state_(state), handshake_(state.token, kStorePurpose) {}

std::size_t StoreSession::num_bytes_wanted() const {
  if (is_over_ || waiting_ || !output_.empty()) return 0;
  if (stage_ == Stage::hello) return kHelloBytes - input_.size();
  if (stage_ == Stage::proof) return kProofBytes - input_.size();
  if (input_.size() < kStoreHeaderBytes) return kStoreHeaderBytes - input_.size();
  return kStoreHeaderBytes + read_store_header(input_).num_bytes - input_.size();
}

void StoreSession::receive(std::span<const std::byte> bytes) {
  input_.insert(input_.end(), bytes.begin(), bytes.end());
  if (stage_ == Stage::hello) return receive_hello();
  if (stage_ == Stage::proof) return receive_proof();
  receive_requests();
}

void StoreSession::receive_hello() {
  if (input_.size() < kHelloBytes) return;
  const auto answer = handshake_.answer(std::span(input_).first<kHelloBytes>());
  input_.clear();
  is_over_ = !answer;
  if (!answer) return;
  stage_ = Stage::proof;
  send(*answer);
}

void StoreSession::receive_proof() {
  if (input_.size() < kProofBytes) return;
  is_over_ = !handshake_.is_proven(std::span(input_).first<kProofBytes>());
  input_.clear();
  if (!is_over_) stage_ = Stage::open;
}

void StoreSession::receive_requests() {
  if (input_.size() < kStoreHeaderBytes) return;
  const StoreHeader header = read_store_header(input_);
  is_over_ = header.num_bytes > kMaxStoreMessageBytes ||
             header.kind > static_cast<std::uint32_t>(StoreRequest::clock);
  if (is_over_ || input_.size() < kStoreHeaderBytes + header.num_bytes) return;
  const Message message = std::exchange(input_, {});
  StoreReader reader{std::span(message).subspan(kStoreHeaderBytes)};
  try {
    const auto answered = answer(static_cast<StoreRequest>(header.kind), reader);
    if (!is_over_ && answered) send(*answered);
  } catch (const Error& error) {
    send(StoreWriter(StoreStatus::refused).text(error.message()).finish());
  }
}

std::optional<Message> StoreSession::answer(StoreRequest request, StoreReader& reader) {
  switch (request) {
    case StoreRequest::get:
    case StoreRequest::wait:
      return start_waiting(request, reader);
    case StoreRequest::abort: {
      const std::string why = reader.text();
      is_over_ = !reader.is_complete();
      if (!is_over_) state_.failure.set(abort_error(decode_error(why)));
      return ok();
    }
    case StoreRequest::leave:
      is_over_ = true;
      if (rank_) state_.ranks.at(*std::exchange(rank_, std::nullopt)).is_connected = false;
      return std::nullopt;
    case StoreRequest::register_rank: {
      const std::int64_t rank = reader.number();
      const std::string process = reader.text();
      is_over_ = !reader.is_complete() || rank_.has_value() || !std::in_range<int>(rank);
      if (is_over_) return std::nullopt;
      return register_rank(static_cast<int>(rank), process);
    }
    default:
      break;
  }
  if (state_.failure.is_set()) return aborted(state_);
  if (request == StoreRequest::num_keys) {
    return StoreWriter(StoreStatus::ok)
        .number(static_cast<std::int64_t>(state_.table.num_keys()))
        .finish();
  }
  if (request == StoreRequest::clock) {
    return StoreWriter(StoreStatus::ok).number(trace::now_ns()).finish();
  }
  return answer_one_key(request, reader);
}

std::optional<Message> StoreSession::answer_one_key(StoreRequest request, StoreReader& reader) {
  const std::string key = reader.text();
  std::string value;
  std::int64_t difference = 0;
  if (request == StoreRequest::add) difference = reader.number();
  if (request == StoreRequest::set || request == StoreRequest::set_if_absent) value = reader.text();
  is_over_ = !reader.is_complete();
  if (is_over_) return std::nullopt;
  StoreTable& table = state_.table;
  switch (request) {
    case StoreRequest::set:
      table.set(key, value);
      return ok();
    case StoreRequest::set_if_absent:
      return ok(table.set_if_absent(key, value));
    case StoreRequest::add:
      return StoreWriter(StoreStatus::ok).number(table.add(key, difference)).finish();
    case StoreRequest::erase:
      return table.erase(key) ? ok() : absent();
    default: {
      const std::string* found = table.find(key);
      return found != nullptr ? ok(*found) : absent();
    }
  }
}

std::optional<Message> StoreSession::start_waiting(StoreRequest request, StoreReader& reader) {
  Waiting waiting;
  waiting.request = request;
  waiting.deadline = deadline_in(reader.number());
  const std::size_t num_keys = request == StoreRequest::wait ? reader.count() : 1;
  is_over_ = num_keys > kMaxKeysPerWait;
  for (std::size_t i = 0; i < num_keys && !is_over_ && reader.is_valid(); ++i) {
    waiting.keys.push_back(reader.text());
  }
  is_over_ = is_over_ || !reader.is_complete();
  if (is_over_) return std::nullopt;
  waiting_ = std::move(waiting);
  look_again(runtime::Clock::now());
  return std::nullopt;
}

void StoreSession::look_again(runtime::Clock::time_point now) {
  if (!waiting_) return;
  Waiting& waiting = *waiting_;
  const StoreTable& table = state_.table;
  while (waiting.num_found < waiting.keys.size() &&
         table.find(waiting.keys[waiting.num_found]) != nullptr) {
    ++waiting.num_found;
  }
  Message message;
  if (state_.failure.is_set()) {
    message = aborted(state_);
  } else if (waiting.num_found == waiting.keys.size()) {
    message = waiting.request == StoreRequest::wait ? ok() : ok(*table.find(waiting.keys[0]));
  } else if (waiting.deadline && now >= *waiting.deadline) {
    message = StoreWriter(StoreStatus::timeout).text(waiting.keys[waiting.num_found]).finish();
  } else {
    return;
  }
  waiting_.reset();
  send(message);
}

std::optional<Message> StoreSession::register_rank(int rank, const std::string& process) {
  if (state_.failure.is_set()) return aborted(state_);
  const bool is_complete = state_.world_size > 0 && state_.ranks.size() >= state_.world_size;
  if (is_complete || state_.ranks.contains(rank)) {
    refuse(rank, process);
    return std::nullopt;
  }
  state_.ranks[rank] = {process.substr(0, kMaxProcessName)};
  rank_ = rank;
  return ok();
}

// The job goes on as if nobody had come, but can say so where it waits for others in vain.
void StoreSession::refuse(int rank, const std::string& process) {
  is_over_ = true;
  const auto seat = state_.ranks.find(rank);
  const bool is_taken = seat != state_.ranks.end();
  const bool has_left = is_taken && !seat->second.is_connected;
  const std::string by_whom =
      is_taken ? fmt::format("rank {} of this job is taken by {}{}", rank, seat->second.process,
                             has_left ? ", which has left" : "")
               : fmt::format("all {} ranks of this job have come, and rank {} is none of them",
                             state_.world_size, rank);
  state_.table.set_if_absent(kRefusedKey,
                             fmt::format("{} came as rank {} and was refused: {}",
                                         process.substr(0, kMaxProcessName), rank, by_whom));
  send(StoreWriter(StoreStatus::taken).number(has_left ? 1 : 0).text(by_whom).finish());
}

void StoreSession::connection_ended() {
  is_over_ = true;
  if (!rank_) return;
  state_.ranks.at(*rank_).is_connected = false;
  state_.failure.set(ended_rank(*rank_));
  rank_.reset();
}

std::span<const std::byte> StoreSession::output() const {
  return std::span(output_).subspan(num_sent_);
}

void StoreSession::was_sent(std::size_t num_bytes) {
  num_sent_ += num_bytes;
  if (num_sent_ < output_.size()) return;
  output_.clear();
  num_sent_ = 0;
}

runtime::Deadline StoreSession::deadline() const {
  return waiting_ ? waiting_->deadline : std::nullopt;
}

void StoreSession::send(std::span<const std::byte> bytes) {
  output_.insert(output_.end(), bytes.begin(), bytes.end());
}

}  // namespace lockstep::comm
