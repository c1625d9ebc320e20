#include "engine/comm/store/tcp_store.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

template <typename Kind>
MessageWriter begin(Kind kind) {
  return MessageWriter().number(static_cast<std::int64_t>(kind));
}

std::string failed(const Error& error) {
  return begin(StoreStatus::failed).text(encode(error, kMaxValueBytes)).bytes();
}

}  // namespace

std::optional<std::string> answer_request(Store& table, std::string_view request) {
  MessageReader reader(request);
  const auto what = static_cast<StoreRequest>(reader.number());
  const std::string_view key = reader.text();
  const bool has_value = what == StoreRequest::set || what == StoreRequest::set_if_absent;
  const std::string_view value = has_value ? reader.text() : "";
  const std::int64_t difference = what == StoreRequest::add ? reader.number() : 0;
  if (!reader.is_complete()) return std::nullopt;
  MessageWriter answer = begin(StoreStatus::ok);
  try {
    switch (what) {
      case StoreRequest::set:
        table.set(key, value);
        break;
      case StoreRequest::set_if_absent:
        answer.text(table.set_if_absent(key, value));
        break;
      case StoreRequest::try_get: {
        const auto found = table.try_get(key);
        answer.number(found ? 1 : 0);
        if (found) answer.text(*found);
        break;
      }
      case StoreRequest::add:
        answer.number(table.add(key, difference));
        break;
      case StoreRequest::abort:
        table.abort(decode_error(key));
        break;
      default:
        return std::nullopt;
    }
  } catch (const Error& error) {
    return failed(error);
  }
  return answer.bytes();
}

// --- server ---

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options)
    : world_size_(options.num_expected_clients),
      listener_(listen_on(options.bind_address, options.port), {kStorePurpose, options.token},
                world_size_),
      acceptor_([this] { accept_all(); }) {}

TcpStoreServer::~TcpStoreServer() {
  listener_.stop();
  acceptor_.join();
  // Wakes the threads.
  for (const Client& client : clients_) {
    shutdown(client.visitor.socket.descriptor(), SHUT_RDWR);
  }
  for (Client& client : clients_) client.thread.join();
}

void TcpStoreServer::accept_all() {
  for (bool is_open = true; is_open;) {
    try {
      auto visitor = listener_.accept({});
      is_open = visitor.has_value();
      if (visitor) let_in(*std::move(visitor));
    } catch (const std::exception&) {
      // Out of descriptors, threads or memory: the job goes on, and the newcomer tries again.
      constexpr std::chrono::milliseconds kPause{20};
      std::this_thread::sleep_for(kPause);
    }
  }
}

void TcpStoreServer::let_in(HelloListener::Visitor visitor) {
  clients_.remove_if([](Client& client) {
    if (!client.has_ended) return false;
    client.thread.join();
    return true;
  });
  Client& client = clients_.emplace_back(std::move(visitor));
  ++num_clients_;
  try {
    client.thread = std::thread([this, &client] { serve(client); });
  } catch (const std::exception&) {
    --num_clients_;
    client.visitor.socket.reset();
    clients_.pop_back();
    throw;
  }
}

void TcpStoreServer::serve(Client& client) {
  const auto& [socket, hello] = client.visitor;
  bool is_rank = false;
  bool has_left = false;
  try {
    const std::string refusal = refusal_of(hello);
    is_rank = hello.rank >= 0 && refusal.empty();
    std::optional<std::string> answer = refusal.empty() ? begin(StoreStatus::ok).bytes() : refusal;
    std::string request;
    while (answer && !has_left && send_message(socket, *answer, {}) == IoResult::done &&
           receive_message(socket, kMaxStoreMessageBytes, request, {}) == IoResult::done) {
      has_left = request == begin(StoreRequest::leave).bytes();
      if (!has_left) answer = answer_request(table_, request);
    }
  } catch (const std::exception&) {
    // No memory for this client.
  }
  if (is_rank) {
    const std::lock_guard lock(ranks_mutex_);
    ranks_.at(hello.rank).is_connected = false;
  }
  if (is_rank && !has_left) table_.abort(ended_rank(hello.rank));
  shutdown(socket.descriptor(), SHUT_RDWR);
  --num_clients_;
  client.has_ended = true;
}

// Empty: the process is let in, as its rank where it says one. A job goes on as if the process that
// it refuses had not come, but can name it where it waits for others in vain.
std::string TcpStoreServer::refusal_of(const Hello& hello) {
  if (hello.rank < 0) return {};
  const std::lock_guard lock(ranks_mutex_);
  const auto holder = ranks_.find(hello.rank);
  const bool is_taken = holder != ranks_.end();
  if (!is_taken && (world_size_ == 0 || ranks_.size() < world_size_)) {
    ranks_[hello.rank] = {hello.process};
    return {};
  }
  const bool has_left = is_taken && !holder->second.is_connected;
  const std::string by_whom =
      is_taken ? fmt::format("rank {} of this job is taken by {}{}", hello.rank,
                             holder->second.process, has_left ? ", which has left" : "")
               : fmt::format("all {} ranks of this job have come, and rank {} is none of them",
                             world_size_, hello.rank);
  try {
    table_.set_if_absent(kRefusedKey, fmt::format("{} came as rank {} and was refused: {}",
                                                  hello.process, hello.rank, by_whom));
  } catch (const Error& error) {
    return failed(error);  // the job was aborted
  }
  return begin(StoreStatus::taken).number(has_left ? 1 : 0).text(by_whom).bytes();
}

bool TcpStoreServer::wait_until_unused(double seconds) const {
  constexpr std::chrono::milliseconds kPause{2};
  const runtime::Deadline deadline = runtime::deadline_after(seconds);
  while (num_clients_ > 0 || listener_.num_pending() > 0) {
    if (runtime::has_passed(deadline)) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// --- client ---

TcpStoreClient::TcpStoreClient(const TcpStoreClientOptions& options)
    : server_(fmt::format("{} port {}", options.host, options.port)),
      answer_seconds_(options.answer_seconds) {
  require_token(options.token);
  const std::string hello =
      encode({kStorePurpose, options.token, options.rank, name_of_this_process()});
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  // A server that strangers keep busy may not have taken the connection at all.
  constexpr std::chrono::seconds kTurn{2};
  constexpr std::chrono::milliseconds kLeastTurn{500};
  constexpr std::chrono::milliseconds kPause{5};
  for (;; std::this_thread::sleep_for(kPause)) {
    socket_ = connect_to(options.host, options.port, deadline);
    const auto now = Clock::now();
    const auto turn = std::max(now + kLeastTurn, *runtime::earlier(deadline, now + kTurn));
    std::string answer;
    IoResult result = send_message(socket_, hello, turn);
    if (result == IoResult::done) {
      result = receive_message(socket_, kMaxStoreMessageBytes, answer, turn);
    }
    const bool is_late = runtime::has_passed(deadline);
    if (result != IoResult::done) {
      require(result != IoResult::closed, ErrorCode::Comm, "store",
              "{} closed the connection: it belongs to a job with another token, or is no Lockstep "
              "store; give this job another --master-port, or both the same LOCKSTEP_TOKEN",
              server_);
      require(!is_late, ErrorCode::Timeout, "store", "{} {}", server_,
              result == IoResult::timeout
                  ? "took the connection but does not answer"
                  : "cut every connection: too many others want to be let in, or it is no Lockstep "
                    "store");
      continue;
    }
    MessageReader reader(answer);
    const auto status = static_cast<StoreStatus>(reader.number());
    if (status == StoreStatus::ok) return;
    if (status == StoreStatus::failed) throw decode_error(reader.text());
    const bool has_left = reader.number() != 0;
    if (has_left && !is_late) continue;
    throw DuplicateRank(
        "join", fmt::format("{}, so {} cannot join; is another job using port {}? give each job "
                            "its own MASTER_PORT (lockstep run --standalone takes a free one), "
                            "and each process of a job its own RANK",
                            reader.text(), name_of_this_process(), options.port));
  }
}

TcpStoreClient::~TcpStoreClient() {
  if (lost_.is_set()) return;
  const runtime::Deadline deadline = runtime::deadline_after(1);
  // The server closes when it has noted that this rank left: later comers shall hear so.
  std::string nothing;
  if (send_message(socket_, begin(StoreRequest::leave).bytes(), deadline) == IoResult::done) {
    receive_message(socket_, 0, nothing, deadline);
  }
}

std::string TcpStoreClient::ask(const MessageWriter& request) {
  const std::lock_guard lock(mutex_);
  lost_.throw_if_set();
  require(request.bytes().size() <= kMaxStoreMessageBytes, ErrorCode::Usage, "store",
          "a request has at most {} bytes, found {}", kMaxStoreMessageBytes,
          request.bytes().size());
  const runtime::Deadline deadline = runtime::deadline_after(answer_seconds_);
  std::string answer;
  IoResult result = send_message(socket_, request.bytes(), deadline);
  if (result == IoResult::done) {
    result = receive_message(socket_, kMaxStoreMessageBytes, answer, deadline);
  }
  // Once an answer is missing, the next one would be taken for it: the connection is lost.
  if (result != IoResult::done) {
    lost_.set(
        Error(result == IoResult::timeout ? ErrorCode::Timeout : ErrorCode::Comm, "store",
              fmt::format("rank 0, which serves the store at {}, {}", server_,
                          result == IoResult::timeout
                              ? "does not answer: its process is stopped, or its host was cut off"
                              : "is gone: its process ended, or was killed")));
    lost_.throw_if_set();
  }
  MessageReader reader(answer);
  const auto status = static_cast<StoreStatus>(reader.number());
  if (status == StoreStatus::failed) throw decode_error(reader.text());
  return answer.substr(std::min(answer.size(), sizeof(std::int64_t)));
}

void TcpStoreClient::set(std::string_view key, std::string_view value) {
  ask(begin(StoreRequest::set).text(key).text(value));
}

std::string TcpStoreClient::set_if_absent(std::string_view key, std::string_view value) {
  const std::string answer = ask(begin(StoreRequest::set_if_absent).text(key).text(value));
  return std::string(MessageReader(answer).text());
}

std::optional<std::string> TcpStoreClient::try_get(std::string_view key) {
  const std::string answer = ask(begin(StoreRequest::try_get).text(key));
  MessageReader reader(answer);
  if (reader.number() == 0) return std::nullopt;
  return std::string(reader.text());
}

std::int64_t TcpStoreClient::add(std::string_view key, std::int64_t difference) {
  const std::string answer = ask(begin(StoreRequest::add).text(key).number(difference));
  return MessageReader(answer).number();
}

void TcpStoreClient::abort(const Error& why) {
  ask(begin(StoreRequest::abort).text(encode(why, kMaxValueBytes)));
}

}  // namespace lockstep::comm
