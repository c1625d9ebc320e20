#include "tutorials/labs/host/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lab {
namespace {

constexpr int kNobody = -1;
constexpr std::size_t kMaxMessages = 100'000;  // one rank's

struct Message {
  std::vector<double> values;
  int step = 0;
};

struct Sent {
  int to = 0;
  std::size_t num_elements = 0;
  int step = 0;
};

class Group {
 public:
  explicit Group(int world_size)
      : world_size_(world_size),
        boxes_(static_cast<std::size_t>(world_size * world_size)),
        ranks_(static_cast<std::size_t>(world_size)) {}

  int world_size() const { return world_size_; }

  void send(int from, std::span<const double> values, int to) {
    const std::lock_guard lock(mutex_);
    require_rank("send", to);
    State& sender = state(from);
    if (sender.sent.size() >= kMaxMessages) {
      throw std::runtime_error(fmt::format("rank {} sent {} messages", from, kMaxMessages));
    }
    const int step = sender.last_step + 1;
    sender.sent.push_back({to, values.size(), step});
    box(from, to).push_back({{values.begin(), values.end()}, step});
    changed_.notify_all();
  }

  void recv(int me, std::span<double> values, int from) {
    std::unique_lock lock(mutex_);
    require_rank("recv", from);
    State& receiver = state(me);
    std::deque<Message>& messages = box(from, me);
    receiver.waits_for = from;
    stop_if_stuck();
    changed_.wait(lock, [&] { return !messages.empty() || failure_; });
    receiver.waits_for = kNobody;
    if (messages.empty()) std::rethrow_exception(failure_);
    const Message message = std::move(messages.front());
    messages.pop_front();
    if (message.values.size() != values.size()) {
      throw std::runtime_error(fmt::format("rank {} wants {} elements of rank {}, which sent {}",
                                           me, values.size(), from, message.values.size()));
    }
    std::ranges::copy(message.values, values.begin());
    receiver.last_step = std::max(receiver.last_step, message.step);
  }

  void finish(int rank, std::exception_ptr problem) {
    const std::lock_guard lock(mutex_);
    state(rank).is_finished = true;
    if (problem && !failure_) failure_ = std::move(problem);
    stop_if_stuck();
    changed_.notify_all();
  }

  void rethrow_failure() const {
    if (failure_) std::rethrow_exception(failure_);
  }

  nlohmann::json messages() const {
    nlohmann::json list = nlohmann::json::array();
    for (int from = 0; from < world_size_; ++from) {
      for (const Sent& sent : ranks_[static_cast<std::size_t>(from)].sent) {
        list.push_back({from, sent.to, sent.num_elements, sent.step});
      }
    }
    return list;
  }

 private:
  struct State {
    int waits_for = kNobody;
    int last_step = 0;  // last step of a message that it has received
    bool is_finished = false;
    std::vector<Sent> sent;
  };

  State& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<Message>& box(int from, int to) {
    return boxes_[static_cast<std::size_t>(from * world_size_ + to)];
  }

  void require_rank(const char* operation, int rank) const {
    if (rank >= 0 && rank < world_size_) return;
    throw std::runtime_error(
        fmt::format("{}: there is no rank {} among {} ranks", operation, rank, world_size_));
  }

  // Fails the group when every rank that is not finished waits for a message that is never sent.
  void stop_if_stuck() {
    std::string waits;
    for (int rank = 0; rank < world_size_; ++rank) {
      const State& its = state(rank);
      if (its.is_finished) continue;
      if (its.waits_for == kNobody || !box(its.waits_for, rank).empty()) return;
      waits += fmt::format("{}rank {} for rank {}", waits.empty() ? "" : ", ", rank, its.waits_for);
    }
    if (waits.empty() || failure_) return;
    failure_ = std::make_exception_ptr(
        std::runtime_error("ranks wait for messages that are never sent: " + waits));
    changed_.notify_all();
  }

  const int world_size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::deque<Message>> boxes_;  // [from][to]
  std::vector<State> ranks_;
  std::exception_ptr failure_;  // the first one
};

class GroupRank final : public Rank {
 public:
  GroupRank(Group& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int world_size() const override { return group_.world_size(); }
  void send(std::span<const double> values, int to) override { group_.send(rank_, values, to); }
  void recv(std::span<double> values, int from) override { group_.recv(rank_, values, from); }

 private:
  Group& group_;
  int rank_;
};

}  // namespace

nlohmann::json run_group(const nlohmann::json& inputs, const RankFunction& function) {
  auto buffers = inputs.at("buffers").get<std::vector<std::vector<double>>>();
  Group group(static_cast<int>(buffers.size()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.world_size(); ++rank) {
    threads.emplace_back([&, rank] {
      std::exception_ptr problem;
      try {
        GroupRank self(group, rank);
        function(self, buffers[static_cast<std::size_t>(rank)]);
      } catch (...) {
        problem = std::current_exception();
      }
      group.finish(rank, problem);
    });
  }
  threads.clear();
  group.rethrow_failure();
  return {{"buffers", buffers}, {"messages", group.messages()}};
}

}  // namespace lab
