#include "engine/comm/store/tcp_store_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>

#include "engine/comm/store/socket.h"
#include "engine/comm/store/store_session.h"
#include "engine/core/error.h"

namespace lockstep::comm {

using runtime::Clock;

// One thread in poll(): accepts, reads what sessions want, writes what they have, and wakes at the
// earliest deadline. Everything but the count of clients belongs to that thread.
class TcpStoreServer::Loop {
 public:
  explicit Loop(const TcpStoreServerOptions& options)
      : listeners_(listen_on_all(options.bind_address, options.port)),
        wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
        max_strangers_(kMaxStrangers + options.num_expected_clients) {
    require(wake_.is_open(), ErrorCode::Comm, "store",
            "this process may not open more files; raise the limit (ulimit -n)");
    state_.token = options.token;
    state_.world_size = options.num_expected_clients;
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    is_stopping_ = true;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof one);
    thread_.join();
  }

  std::uint16_t port() const { return port_of(listeners_.front()); }

  std::size_t num_clients() const {
    const std::lock_guard lock(mutex_);
    return num_clients_;
  }

  bool wait_until_unused(double seconds) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return num_connections_ == 0; });
  }

 private:
  struct Client {
    Client(Socket connected, StoreState& state)
        : socket(std::move(connected)), session(state), since(Clock::now()) {}
    Socket socket;
    StoreSession session;
    Clock::time_point since;
    bool is_counted = false;
    bool is_gone = false;
    bool is_cut = false;  // not for what it said: it may try again
  };

  void run();
  void list_descriptors();
  runtime::Deadline next_deadline() const;
  void accept_all(const Socket& listener);
  void make_room();
  void cut_off(Client& client);
  void serve(Client& client, short events);
  void read_from(Client& client);
  void write_to(Client& client);
  void look_after_all();
  void close_ended();
  void count(Client& client);

  std::vector<Socket> listeners_;
  Socket wake_;
  const std::size_t max_strangers_;
  StoreState state_;
  std::list<Client> clients_;
  std::vector<pollfd> descriptors_;
  runtime::Deadline accept_again_;  // set while the process has no descriptor for a connection
  std::atomic<bool> is_stopping_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::size_t num_clients_ = 0;
  std::size_t num_connections_ = 0;  // beside the clients, those that have not proved themselves
  std::thread thread_;
};

void TcpStoreServer::Loop::run() {
  while (!is_stopping_) {
    list_descriptors();
    if (poll(descriptors_.data(), descriptors_.size(),
             runtime::milliseconds_until(next_deadline())) < 0) {
      continue;
    }
    std::size_t next = 1 + listeners_.size();
    for (Client& client : clients_) serve(client, descriptors_[next++].revents);
    accept_again_.reset();
    for (std::size_t i = 0; i < listeners_.size(); ++i) {
      if (descriptors_[1 + i].revents != 0) accept_all(listeners_[i]);
    }
    make_room();
    close_ended();
    look_after_all();
  }
}

void TcpStoreServer::Loop::list_descriptors() {
  descriptors_.clear();
  descriptors_.push_back({wake_.descriptor(), POLLIN, 0});
  for (const Socket& listener : listeners_) {
    descriptors_.push_back(
        {listener.descriptor(), static_cast<short>(accept_again_ ? 0 : POLLIN), 0});
  }
  for (const Client& client : clients_) {
    short events = POLLRDHUP;
    if (client.session.num_bytes_wanted() > 0) events |= POLLIN;
    if (!client.session.output().empty()) events |= POLLOUT;
    descriptors_.push_back({client.socket.descriptor(), events, 0});
  }
}

runtime::Deadline TcpStoreServer::Loop::next_deadline() const {
  runtime::Deadline earliest = accept_again_;
  for (const Client& client : clients_) {
    earliest = runtime::earlier(earliest, client.session.deadline());
    if (!client.session.is_proven()) {
      earliest = runtime::earlier(earliest, client.since + kHandshakeTime);
    }
  }
  return earliest;
}

void TcpStoreServer::Loop::accept_all(const Socket& listener) {
  constexpr int kMostAtOnce = 64;  // then the clients have their turn
  constexpr std::chrono::milliseconds kPause{50};
  for (int i = 0; i < kMostAtOnce; ++i) {
    Socket connection;
    const AcceptResult result = accept_from(listener, connection);
    if (result == AcceptResult::no_descriptors) accept_again_ = Clock::now() + kPause;
    if (result != AcceptResult::accepted) break;
    clients_.emplace_back(std::move(connection), state_);
    {
      const std::lock_guard lock(mutex_);
      ++num_connections_;
    }
    serve(clients_.back(), POLLIN);  // its hello has often come before its turn
  }
}

// Only strangers make room for strangers, and only those that wait for others that wait.
void TcpStoreServer::Loop::make_room() {
  std::size_t num_strangers = 0;
  std::size_t num_waiting = 0;
  for (auto client = clients_.rbegin(); client != clients_.rend(); ++client) {
    if (client->session.is_proven() || client->session.is_over()) continue;
    std::size_t& count = client->session.has_said_hello() ? num_waiting : num_strangers;
    if (++count > max_strangers_) cut_off(*client);
  }
}

void TcpStoreServer::Loop::cut_off(Client& client) {
  client.is_gone = true;
  client.is_cut = true;
}

void TcpStoreServer::Loop::serve(Client& client, short events) {
  try {
    if ((events & POLLIN) != 0) read_from(client);
    write_to(client);
    const bool has_ended = (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    // What it said before it ended is read first.
    if (has_ended && ((events & POLLIN) == 0 || client.session.num_bytes_wanted() == 0)) {
      client.is_gone = true;
    }
  } catch (const std::exception&) {
    client.is_gone = true;  // no memory for what this client wants
  }
}

void TcpStoreServer::Loop::read_from(Client& client) {
  constexpr std::size_t kMostAtOnce = 65536;
  std::array<std::byte, kMostAtOnce> buffer;
  while (true) {
    const std::size_t wanted = std::min(client.session.num_bytes_wanted(), kMostAtOnce);
    if (wanted == 0) return;
    const auto received = receive_some(client.socket, std::span(buffer).first(wanted));
    if (!received) client.is_gone = true;
    if (!received || *received == 0) return;
    client.session.receive(std::span(buffer).first(*received));
    count(client);  // before it hears that it was let in
    write_to(client);
  }
}

void TcpStoreServer::Loop::write_to(Client& client) {
  while (!client.session.output().empty()) {
    const auto sent = send_some(client.socket, client.session.output());
    if (!sent) client.is_gone = true;
    if (!sent || *sent == 0) return;
    client.session.was_sent(*sent);
  }
}

// Requests that wait: for a key that is there by now, for their deadline, for an abort.
void TcpStoreServer::Loop::look_after_all() {
  const auto now = Clock::now();
  const auto oldest = now - kHandshakeTime;
  for (Client& client : clients_) {
    if (!client.session.is_proven() && client.since <= oldest) cut_off(client);
    client.session.look_again(now);
    if (!client.is_gone) write_to(client);
  }
}

void TcpStoreServer::Loop::close_ended() {
  for (Client& client : clients_) {
    if (client.is_gone) client.session.connection_ended();
    if (client.is_cut) client.socket.reset();
  }
  std::size_t num_clients_closed = 0;
  const std::size_t num_closed = clients_.remove_if([&](const Client& client) {
    const bool is_over = client.session.is_over() && client.session.output().empty();
    if (!client.is_gone && !is_over) return false;
    if (client.is_counted) ++num_clients_closed;
    return true;
  });
  if (num_closed == 0) return;
  const std::lock_guard lock(mutex_);
  num_clients_ -= num_clients_closed;
  num_connections_ -= num_closed;
  changed_.notify_all();
}

void TcpStoreServer::Loop::count(Client& client) {
  if (client.is_counted || !client.session.is_proven()) return;
  client.is_counted = true;
  const std::lock_guard lock(mutex_);
  ++num_clients_;
}

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options) {
  require_token(options.token);
  loop_ = std::make_unique<Loop>(options);
}

TcpStoreServer::~TcpStoreServer() = default;

std::uint16_t TcpStoreServer::port() const {
  return loop_->port();
}
std::size_t TcpStoreServer::num_clients() const {
  return loop_->num_clients();
}
bool TcpStoreServer::wait_until_unused(double seconds) const {
  return loop_->wait_until_unused(seconds);
}

}  // namespace lockstep::comm
