#include "engine/comm/store/tcp_store.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <map>
#include <thread>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"

namespace lockstep::comm {
namespace {

using runtime::Clock;

constexpr std::size_t kMaxProcessName = 256;

MessageWriter begin(StoreRequest request) {
  return MessageWriter().number(static_cast<std::int64_t>(request));
}
MessageWriter begin(StoreStatus status) {
  return MessageWriter().number(static_cast<std::int64_t>(status));
}

std::string failed(const Error& error) {
  return begin(StoreStatus::failed).text(encode(error, kMaxValueBytes)).bytes();
}

bool is_gone(const Socket& connection) {
  pollfd state{connection.descriptor(), POLLRDHUP, 0};
  return poll(&state, 1, 0) > 0;
}

// A client that is killed while it waits for a key has to be noticed.
std::optional<std::string> answer_find(Store& table, std::string_view key,
                                       runtime::Deadline deadline,
                                       const std::function<bool()>& is_client_gone) {
  constexpr std::chrono::milliseconds kLookInterval{20};
  for (;;) {
    const auto value = table.find(key, runtime::earlier(deadline, Clock::now() + kLookInterval));
    if (value) return begin(StoreStatus::ok).number(1).text(*value).bytes();
    if (runtime::has_passed(deadline)) return begin(StoreStatus::ok).number(0).bytes();
    if (is_client_gone()) return std::nullopt;
  }
}

}  // namespace

std::optional<std::string> answer_request(Store& table, std::string_view request,
                                          const std::function<bool()>& is_client_gone) {
  MessageReader reader(request);
  const std::int64_t kind = reader.number();
  if (!reader.is_valid() || kind < 0 || kind > static_cast<std::int64_t>(StoreRequest::abort)) {
    return std::nullopt;
  }
  const auto what = static_cast<StoreRequest>(kind);
  const bool has_value = what == StoreRequest::set || what == StoreRequest::set_if_absent;
  const bool has_number = what == StoreRequest::find || what == StoreRequest::add;
  const std::string_view key = what == StoreRequest::clock ? "" : reader.text();
  const std::string_view value = has_value ? reader.text() : "";
  const std::int64_t number = has_number ? reader.number() : 0;
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
      case StoreRequest::find: {
        const runtime::Deadline deadline =
            number < 0 ? runtime::Deadline{}
                       : runtime::deadline_after(1e-3 * static_cast<double>(number));
        return answer_find(table, key, deadline, is_client_gone);
      }
      case StoreRequest::add:
        answer.number(table.add(key, number));
        break;
      case StoreRequest::erase:
        table.erase(key);
        break;
      case StoreRequest::clock:
        answer.number(table.clock_ns());
        break;
      case StoreRequest::abort:
        table.abort(decode_error(key));
        break;
      case StoreRequest::take_rank:
      case StoreRequest::leave:
        return std::nullopt;
    }
  } catch (const Error& error) {
    return failed(error);
  }
  return answer.bytes();
}

// --- server ---

class TcpStoreServer::Impl {
 public:
  explicit Impl(const TcpStoreServerOptions& options)
      : world_size_(options.num_expected_clients),
        listener_(listen_on_all(options.bind_address, options.port), {kStorePurpose, options.token},
                  world_size_),
        acceptor_([this] { accept_all(); }) {}

  ~Impl() {
    listener_.stop();
    acceptor_.join();
    // Wakes the threads.
    for (const Client& client : clients_) shutdown(client.socket.descriptor(), SHUT_RDWR);
    for (Client& client : clients_) client.thread.join();
  }

  std::uint16_t port() const { return listener_.port(); }
  bool is_unused() const { return num_clients_ == 0 && listener_.num_pending() == 0; }

 private:
  struct Client {
    explicit Client(Socket connection) : socket(std::move(connection)) {}
    Socket socket;
    std::optional<int> rank;
    std::thread thread;
    std::atomic<bool> has_ended{false};
  };
  // The process that is a rank, for good, also when it has left: a process that comes as the same
  // rank later belongs to another job.
  struct RankHolder {
    std::string process;
    bool is_connected = true;
  };

  void accept_all();
  void let_in(HelloListener::Visitor visitor);
  void serve(Client& client);
  bool answer_requests(Client& client);
  std::string take_rank(Client& client, int rank, std::string_view process);

  const std::size_t world_size_;
  MemoryStore table_;
  std::mutex ranks_mutex_;
  std::map<int, RankHolder> ranks_;
  std::atomic<std::size_t> num_clients_{0};
  std::list<Client> clients_;  // the acceptor's
  HelloListener listener_;
  std::thread acceptor_;
};

void TcpStoreServer::Impl::accept_all() {
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

void TcpStoreServer::Impl::let_in(HelloListener::Visitor visitor) {
  clients_.remove_if([](Client& client) {
    if (!client.has_ended) return false;
    client.thread.join();
    return true;
  });
  Client& client = clients_.emplace_back(std::move(visitor.socket));
  ++num_clients_;
  try {
    client.thread = std::thread([this, &client] { serve(client); });
  } catch (const std::exception&) {
    --num_clients_;
    client.socket.reset();
    clients_.pop_back();
    throw;
  }
}

void TcpStoreServer::Impl::serve(Client& client) {
  bool has_left = false;
  try {
    has_left = answer_requests(client);
  } catch (const std::exception&) {
    // No memory for this client.
  }
  if (client.rank) {
    const std::lock_guard lock(ranks_mutex_);
    ranks_.at(*client.rank).is_connected = false;
  }
  if (client.rank && !has_left) table_.abort(ended_rank(*client.rank));
  shutdown(client.socket.descriptor(), SHUT_RDWR);
  --num_clients_;
  client.has_ended = true;
}

// Returns when the connection ends; true when the client said that it leaves.
bool TcpStoreServer::Impl::answer_requests(Client& client) {
  const auto is_client_gone = [&] { return is_gone(client.socket); };
  std::optional<std::string> answer = begin(StoreStatus::ok).bytes();  // to the hello
  std::string request;
  while (answer && send_message(client.socket, *answer, {}) == IoResult::done &&
         receive_message(client.socket, kMaxStoreMessageBytes, request, {}) == IoResult::done) {
    MessageReader reader(request);
    const std::int64_t kind = reader.number();
    if (kind == static_cast<std::int64_t>(StoreRequest::leave)) return true;
    if (kind != static_cast<std::int64_t>(StoreRequest::take_rank)) {
      answer = answer_request(table_, request, is_client_gone);
      continue;
    }
    const std::int64_t rank = reader.number();
    const std::string_view process = reader.text();
    if (!reader.is_complete() || client.rank || !std::in_range<int>(rank)) return false;
    answer = take_rank(client, static_cast<int>(rank), process.substr(0, kMaxProcessName));
  }
  return false;
}

// A job goes on as if the process that it refuses had not come, but can name it where it waits for
// others in vain.
std::string TcpStoreServer::Impl::take_rank(Client& client, int rank, std::string_view process) {
  const std::lock_guard lock(ranks_mutex_);
  const auto holder = ranks_.find(rank);
  const bool is_taken = holder != ranks_.end();
  if (!is_taken && (world_size_ == 0 || ranks_.size() < world_size_)) {
    ranks_[rank] = {std::string(process)};
    client.rank = rank;
    return begin(StoreStatus::ok).bytes();
  }
  const bool has_left = is_taken && !holder->second.is_connected;
  const std::string by_whom =
      is_taken ? fmt::format("rank {} of this job is taken by {}{}", rank, holder->second.process,
                             has_left ? ", which has left" : "")
               : fmt::format("all {} ranks of this job have come, and rank {} is none of them",
                             world_size_, rank);
  try {
    table_.set_if_absent(
        kRefusedKey, fmt::format("{} came as rank {} and was refused: {}", process, rank, by_whom));
  } catch (const Error& error) {
    return failed(error);  // the job was aborted
  }
  return begin(StoreStatus::taken).number(has_left ? 1 : 0).text(by_whom).bytes();
}

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options) {
  require_token(options.token);
  impl_ = std::make_unique<Impl>(options);
}

TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const {
  return impl_->port();
}

bool TcpStoreServer::wait_until_unused(double seconds) const {
  constexpr std::chrono::milliseconds kPause{2};
  const runtime::Deadline deadline = runtime::deadline_after(seconds);
  while (!impl_->is_unused()) {
    if (runtime::has_passed(deadline)) return false;
    std::this_thread::sleep_for(kPause);
  }
  return true;
}

// --- client ---

TcpStoreClient::TcpStoreClient(const TcpStoreClientOptions& options)
    : timeout_seconds_(options.timeout_seconds) {
  const std::string where = fmt::format("{} port {}", options.host, options.port);
  server_ = options.served_by.empty()
                ? fmt::format("the store at {}", where)
                : fmt::format("{}, which serves the store at {},", options.served_by, where);
  require_token(options.token);
  const Hello hello{kStorePurpose, options.token};
  const runtime::Deadline deadline =
      runtime::deadline_after(options.connect_seconds.value_or(options.timeout_seconds));
  // A server that strangers keep busy may not have taken the connection at all.
  constexpr std::chrono::seconds kTurn{2};
  std::string answer;
  for (;;) {
    socket_ = connect_to(options.host, options.port, deadline);
    const IoResult result = say_hello(socket_, hello, kMaxStoreMessageBytes, answer,
                                      runtime::earlier(deadline, Clock::now() + kTurn));
    if (result == IoResult::done) break;
    require(result != IoResult::closed, ErrorCode::Comm, "store",
            "{} closed the connection: it belongs to a job with another token, or is no Lockstep "
            "store; give this job another --master-port, or both the same LOCKSTEP_TOKEN",
            where);
    require(!runtime::has_passed(deadline), ErrorCode::Timeout, "store", "{} {}", where,
            result == IoResult::timeout
                ? "took the connection but does not answer"
                : "cut every connection: too many others want to be let in, or it is no Lockstep "
                  "store");
    std::this_thread::sleep_for(kPauseAfterReset);
  }
  if (!options.rank) return;
  answer = ask(begin(StoreRequest::take_rank).number(*options.rank).text(name_of_this_process()));
  if (answer.empty()) return;
  MessageReader refusal(answer);
  const bool has_left = refusal.number() != 0;
  throw DuplicateRank(
      "join",
      fmt::format("{}, so {} cannot join; is another job using port {}? give each job "
                  "its own MASTER_PORT (lockstep run --standalone takes a free one), "
                  "and each process of a job its own RANK",
                  refusal.text(), name_of_this_process(), options.port),
      has_left ? DuplicateRank::Holder::has_left : DuplicateRank::Holder::is_here);
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

std::string TcpStoreClient::ask(const MessageWriter& request,
                                std::optional<runtime::Deadline> deadline) {
  const std::lock_guard lock(mutex_);
  lost_.throw_if_set();
  require(request.bytes().size() <= kMaxStoreMessageBytes, ErrorCode::Usage, "store",
          "a request has at most {} bytes, found {}", kMaxStoreMessageBytes,
          request.bytes().size());
  runtime::Deadline answer_by = runtime::deadline_after(timeout_seconds_);
  if (deadline && !runtime::has_passed(*deadline)) {
    answer_by = *deadline;
    const std::chrono::duration<double> grace(std::clamp(timeout_seconds_ / 4, 0.5, 5.0));
    if (answer_by) *answer_by += std::chrono::duration_cast<Clock::duration>(grace);
  }
  std::string answer;
  require_done(send_message(socket_, request.bytes(), runtime::deadline_after(timeout_seconds_)));
  require_done(receive_message(socket_, kMaxStoreMessageBytes, answer, answer_by));
  MessageReader reader(answer);
  const std::int64_t status = reader.number();
  if (!reader.is_valid()) require_done(IoResult::closed);
  if (status == static_cast<std::int64_t>(StoreStatus::failed)) throw decode_error(reader.text());
  return answer.substr(sizeof(std::int64_t));
}

// Once an answer is missing, the next one would be taken for it: the connection is lost.
void TcpStoreClient::require_done(IoResult result) {
  if (result == IoResult::done) return;
  lost_.set(result != IoResult::timeout
                ? Error(ErrorCode::Comm, "store",
                        fmt::format("{} is gone: its process ended, or was killed", server_))
                : Error(ErrorCode::Timeout, "store",
                        fmt::format("{} does not answer: its process is stopped, or its host was "
                                    "cut off",
                                    server_)));
  throw lost_.error();
}

void TcpStoreClient::set(std::string_view key, std::string_view value) {
  ask(begin(StoreRequest::set).text(key).text(value));
}

std::string TcpStoreClient::set_if_absent(std::string_view key, std::string_view value) {
  const std::string answer = ask(begin(StoreRequest::set_if_absent).text(key).text(value));
  return std::string(MessageReader(answer).text());
}

std::optional<std::string> TcpStoreClient::find(std::string_view key, runtime::Deadline deadline) {
  const std::int64_t milliseconds = runtime::milliseconds_until(deadline);
  const std::string answer =
      ask(begin(StoreRequest::find).text(key).number(milliseconds), deadline);
  MessageReader reader(answer);
  if (reader.number() == 0) return std::nullopt;
  return std::string(reader.text());
}

std::int64_t TcpStoreClient::add(std::string_view key, std::int64_t difference) {
  const std::string answer = ask(begin(StoreRequest::add).text(key).number(difference));
  return MessageReader(answer).number();
}

void TcpStoreClient::erase(std::string_view key) {
  ask(begin(StoreRequest::erase).text(key));
}

std::int64_t TcpStoreClient::clock_ns() {
  const std::string answer = ask(begin(StoreRequest::clock));
  return MessageReader(answer).number();
}

void TcpStoreClient::abort(const Error& why) {
  ask(begin(StoreRequest::abort).text(encode(why, kMaxValueBytes)));
}

}  // namespace lockstep::comm
