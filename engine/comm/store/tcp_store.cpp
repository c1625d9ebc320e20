#include "engine/comm/store/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include "engine/comm/comm_errors.h"

namespace lockstep::comm {
namespace {

Message failed(const Error& error) {
  return {"failed", encode(error, kMaxValueBytes)};
}

std::string_view first_of(const Message& message) {
  return message.empty() ? std::string_view() : message.front();
}

}  // namespace

Message answer_request(Store& table, const Message& request) {
  try {
    Message answer = table.ask(request);
    answer.insert(answer.begin(), "ok");
    return answer;
  } catch (const Error& error) {
    return failed(error);
  }
}

// --- server ---

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options)
    : world_size_(options.num_expected_clients), expected_{kStorePurpose, options.token} {
  require_token(options.token);
  listener_ = listen_on(options.bind_address, options.port);
  acceptor_ = std::thread([this] { accept_all(); });
}

TcpStoreServer::~TcpStoreServer() {
  is_stopping_ = true;
  listener_.shut_down();  // wakes the acceptor
  acceptor_.join();
  for (const Client& client : clients_) client.socket.shut_down();
  for (Client& client : clients_) client.thread.join();
}

void TcpStoreServer::accept_all() {
  while (!is_stopping_) {
    wait_for_event(listener_, POLLIN, {});
    forget_ended();
    Socket connection = accept_from(listener_);
    try {
      if (connection.is_open()) {
        Client& client = clients_.emplace_back();
        client.socket = std::move(connection);
        ++num_clients_;
        client.thread = std::thread([this, &client] { serve(client); });
        continue;
      }
    } catch (const std::system_error&) {
      clients_.back().socket.reset();
      clients_.pop_back();
      --num_clients_;
    }
    // This process is out of descriptors or threads: the job goes on, and the newcomer tries again.
    constexpr std::chrono::milliseconds kPause{20};
    std::this_thread::sleep_for(kPause);
  }
}

void TcpStoreServer::forget_ended() {
  clients_.remove_if([](Client& client) {
    if (!client.has_ended) return false;
    client.thread.join();
    return true;
  });
}

void TcpStoreServer::serve(Client& client) {
  try {
    const auto hello = receive_hello(client.socket, expected_, {});
    if (hello) answer_requests(client.socket, *hello);
  } catch (const std::exception&) {
    // No memory for this client.
  }
  client.socket.shut_down();
  --num_clients_;
  client.has_ended = true;
}

void TcpStoreServer::answer_requests(const Socket& socket, const Hello& hello) {
  Message answer = answer_hello(hello);
  const bool is_rank = hello.rank >= 0 && first_of(answer) == "ok";
  bool has_left = false;
  try {
    Message request;
    while (!has_left && send_message(socket, answer, {}) == IoResult::done &&
           receive_message(socket, kMaxStoreMessageBytes, request, {}) == IoResult::done) {
      has_left = first_of(request) == "leave";
      if (!has_left) answer = answer_request(table_, request);
    }
  } catch (const std::exception&) {
    // No memory for this request.
  }
  if (!is_rank) return;
  {
    const std::lock_guard lock(ranks_mutex_);
    ranks_.at(hello.rank).is_connected = false;
  }
  if (!has_left) table_.abort(ended_rank("store", hello.rank, "ended without leaving"));
}

// "ok" lets the process in, as its rank if it names one. After a refusal the job goes on
// undisturbed.
Message TcpStoreServer::answer_hello(const Hello& hello) {
  if (hello.rank < 0) return {"ok"};
  const std::lock_guard lock(ranks_mutex_);
  const auto holder = ranks_.find(hello.rank);
  const bool is_taken = holder != ranks_.end();
  if (!is_taken && (world_size_ == 0 || ranks_.size() < world_size_)) {
    ranks_[hello.rank] = {hello.process};
    return {"ok"};
  }
  const bool has_left = is_taken && !holder->second.is_connected;
  const std::string by_whom =
      is_taken ? fmt::format("rank {} of this job is taken by {}{}", hello.rank,
                             holder->second.process, has_left ? ", which has left" : "")
               : fmt::format("all {} ranks of this job have come, and rank {} is not one of them",
                             world_size_, hello.rank);
  return {has_left ? "left" : "taken", by_whom};
}

bool TcpStoreServer::wait_until_unused(double seconds) const {
  constexpr std::chrono::milliseconds kPause{2};
  const runtime::Deadline deadline = runtime::deadline_after(seconds);
  while (num_clients_ > 0) {
    if (runtime::has_passed(deadline)) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// --- client ---

TcpStoreClient::TcpStoreClient(const TcpStoreClientOptions& options)
    : server_(fmt::format("{} port {}", options.host, options.port)),
      answer_seconds_(std::min(10.0, options.timeout_seconds)) {
  require_token(options.token);
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  constexpr std::chrono::milliseconds kPause{5};
  while (!try_to_join(options, deadline)) std::this_thread::sleep_for(kPause);
}

// False: try again. A server that is out of descriptors or threads cuts connections.
bool TcpStoreClient::try_to_join(const TcpStoreClientOptions& options, runtime::Deadline deadline) {
  constexpr std::chrono::milliseconds kLeastTurn{500};
  constexpr std::chrono::seconds kTurn{5};
  socket_ = connect_to(options.host, options.port, deadline);
  const auto now = runtime::Clock::now();
  const auto turn = std::max(now + kLeastTurn, *runtime::earlier(deadline, now + kTurn));
  const Hello hello{kStorePurpose, options.token, options.rank, name_of_this_process()};
  Message answer;
  IoResult result = send_message(socket_, to_message(hello), turn);
  if (result == IoResult::done) {
    result = receive_message(socket_, kMaxStoreMessageBytes, answer, turn);
  }
  const bool is_late = runtime::has_passed(deadline);
  require(result != IoResult::closed, ErrorCode::Comm, "store",
          "{} closed the connection: it belongs to a job with another token, or is not a Lockstep "
          "store; give this job another port, or both the same LOCKSTEP_TOKEN",
          server_);
  require(result != IoResult::timeout, ErrorCode::Timeout, "store",
          "{} took the connection but does not answer: another program listens there, or the "
          "process of rank 0 is stopped",
          server_);
  require(result == IoResult::done || !is_late, ErrorCode::Timeout, "store",
          "{} closed every connection: too many others want to join, or it is not a Lockstep store",
          server_);
  if (result != IoResult::done) return false;
  const std::string_view status = first_of(answer);
  if (status == "ok") return true;
  if (status == "left" && !is_late) return false;
  require(answer.size() == 2, ErrorCode::Comm, "store", "{} is not a Lockstep store", server_);
  if (status == "failed") throw decode_error(answer[1]);
  fail(ErrorCode::Comm, "join",
       "{}, so {} cannot join; is another job using port {}? give each job its own MASTER_PORT, "
       "and each process of a job its own RANK",
       answer[1], name_of_this_process(), options.port);
}

TcpStoreClient::~TcpStoreClient() {
  if (lost_.is_set()) return;
  const runtime::Deadline deadline = runtime::deadline_after(1);
  // The server closes after it has recorded that this rank left, so that later comers hear of it.
  Message nothing;
  if (send_message(socket_, {"leave"}, deadline) == IoResult::done) {
    receive_message(socket_, 0, nothing, deadline);
  }
}

Message TcpStoreClient::ask(const Message& request) {
  const std::lock_guard lock(mutex_);
  lost_.throw_if_set();
  const std::string bytes = encode(request);
  require(bytes.size() <= kMaxStoreMessageBytes, ErrorCode::Usage, "store",
          "a request has at most {} bytes, found {}", kMaxStoreMessageBytes, bytes.size());
  const runtime::Deadline deadline = runtime::deadline_after(answer_seconds_);
  Message answer;
  IoResult result = send_all(socket_, std::as_bytes(std::span(bytes)), deadline);
  if (result == IoResult::done) {
    result = receive_message(socket_, kMaxStoreMessageBytes, answer, deadline);
  }
  // After a missing answer, the next one would be taken for it, so the connection is lost.
  if (result != IoResult::done) {
    const bool is_late = result == IoResult::timeout;
    lost_.set(
        Error(is_late ? ErrorCode::Timeout : ErrorCode::Comm, "store",
              fmt::format("rank 0, which serves the store at {}, {}", server_,
                          is_late ? "does not answer: its process is stopped, or its host was cut "
                                    "off"
                                  : "is gone: its process ended, or was killed")));
    lost_.throw_if_set();
  }
  if (first_of(answer) == "failed" && answer.size() == 2) throw decode_error(answer[1]);
  answer.erase(answer.begin(), answer.begin() + (answer.empty() ? 0 : 1));
  return answer;
}

}  // namespace lockstep::comm
