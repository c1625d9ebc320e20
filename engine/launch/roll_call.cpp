#include "engine/launch/roll_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "engine/comm/host_identity.h"
#include "engine/core/error.h"

namespace lockstep::launch {
namespace {

std::string rank_key(int rank) {
  return fmt::format("join/rank/{}", rank);
}

// Ends the roll call for everybody, in the same words.
[[noreturn]] void end_for_all(comm::Store& store, ErrorCode code, const std::string& why) {
  const Error error(code, "join", why);
  store.abort(error);
  throw error;
}

// Says who this rank is, and finds out whether that contradicts what another one said. (That two
// have the same number was noticed when the second one connected, and refused.)
void register_rank(comm::Store& store, const RankEnvironment& rank) {
  store.set(rank_key(rank.rank), "");
  const std::string mine = fmt::format("{} (rank {})", rank.world_size, rank.rank);
  const std::string first = store.set_if_absent("join/world_size", mine);
  if (std::stoi(first) != rank.world_size) {
    end_for_all(store, ErrorCode::Usage,
                fmt::format("the ranks were told different world sizes: {} and {}; set one "
                            "WORLD_SIZE for all",
                            first, mine));
  }
  store.set(fmt::format("join/host/{}", rank.rank), comm::host_identity());
}

// One to a line, behind the rank that has them.
std::string describe(const std::vector<Setting>& settings, int rank) {
  std::string text = fmt::format("{}\n", rank);
  for (const Setting& setting : settings) {
    text += fmt::format("{}={}\n", setting.name, setting.value);
  }
  return text;
}

// The first line that differs: its name, and its value in either text.
struct Difference {
  std::string name, first, second;
};
Difference first_difference(std::istringstream& first, std::istringstream& second) {
  Difference found;
  do {
    found = {};
    std::getline(first, found.first);
    std::getline(second, found.second);
  } while (found.first == found.second && first && second);
  found.name = found.first.substr(0, found.first.find('='));
  const bool has_both = found.second.starts_with(found.name + "=");
  if (!has_both) {
    const auto said = [](const std::string& line) { return line.empty() ? "nothing" : line; };
    return {"what they do", said(found.first), said(found.second)};
  }
  found.first.erase(0, found.name.size() + 1);
  found.second.erase(0, found.name.size() + 1);
  return found;
}

// As with the world size: all compare theirs with what the first one said.
void compare_settings(comm::Store& store, const RankEnvironment& rank,
                      const std::vector<Setting>& settings) {
  const std::string mine = describe(settings, rank.rank);
  const std::string first = store.set_if_absent("join/settings", mine);
  std::istringstream theirs(first);
  std::istringstream ours(mine);
  std::string their_rank;
  std::string our_rank;
  std::getline(theirs, their_rank);
  std::getline(ours, our_rank);
  if (first.substr(their_rank.size()) == mine.substr(our_rank.size())) return;
  const Difference found = first_difference(theirs, ours);
  constexpr std::size_t kMostQuoted = 80;
  end_for_all(store, ErrorCode::Usage,
              fmt::format("the ranks differ in {}: {:.{}} (rank {}) and {:.{}} (rank {}); start "
                          "all of them with the same",
                          found.name, found.first, kMostQuoted, their_rank, found.second,
                          kMostQuoted, our_rank));
}

std::vector<int> find_missing(comm::Store& store, const RankEnvironment& rank) {
  std::vector<int> missing;
  for (int r = 0; r < rank.world_size; ++r) {
    if (!store.try_get(rank_key(r))) missing.push_back(r);
  }
  return missing;
}

[[noreturn]] void fail_missing(comm::Store& store, const RankEnvironment& rank,
                               double timeout_seconds, const std::vector<int>& missing) {
  if (missing.empty()) {
    end_for_all(store, ErrorCode::Timeout,
                fmt::format("all {} ranks came within {:g} s, but one of them does not go on: its "
                            "process is stopped",
                            rank.world_size, timeout_seconds));
  }
  constexpr std::size_t kMostNamed = 8;
  const auto named = std::span(missing).first(std::min(missing.size(), kMostNamed));
  const auto refused = store.try_get(comm::kRefusedKey);
  end_for_all(store, ErrorCode::Timeout,
              fmt::format("{} of {} ranks came within {:g} s, missing: rank {}{}; start them too, "
                          "or correct WORLD_SIZE{}",
                          static_cast<std::size_t>(rank.world_size) - missing.size(),
                          rank.world_size, timeout_seconds, fmt::join(named, ", "),
                          missing.size() > kMostNamed ? ", ..." : "",
                          refused ? fmt::format(" ({})", *refused) : ""));
}

// The last one that comes opens the door for all.
void wait_for_all(comm::Store& store, const RankEnvironment& rank, double timeout_seconds,
                  const WaitingNotice& notice) {
  constexpr const char* kComplete = "join/complete";
  if (store.add("join/num_ranks", 1) == rank.world_size) store.set(kComplete, "");
  const runtime::Deadline end = runtime::deadline_after(timeout_seconds);
  const auto deadline_of_look = [&](double seconds) {
    const runtime::Deadline look = runtime::deadline_after(seconds);
    return notice.tell ? runtime::earlier(look, end) : end;
  };
  runtime::Deadline look = deadline_of_look(notice.after_seconds);
  std::vector<int> told;
  for (;;) {
    try {
      store.get(kComplete, look);
      return;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::Timeout) throw;
    }
    std::vector<int> missing = find_missing(store, rank);
    if (look == end) fail_missing(store, rank, timeout_seconds, missing);
    if (!missing.empty() && missing != told) notice.tell(missing);
    told = std::move(missing);
    look = deadline_of_look(notice.after_seconds / 2);
  }
}

void count_hosts(comm::Store& store, RankEnvironment& rank) {
  if (rank.local_world_size != 0 && rank.node_rank >= 0) return;
  const std::string mine = comm::host_identity();
  std::set<std::string> hosts_before;
  int on_this_host = 0;
  int node_rank = -1;
  for (int r = 0; r < rank.world_size; ++r) {
    const std::string host = store.try_get(fmt::format("join/host/{}", r)).value_or("");
    if (host == mine) {
      ++on_this_host;
      if (node_rank < 0) node_rank = static_cast<int>(hosts_before.size());
    }
    hosts_before.insert(host);
  }
  if (rank.local_world_size == 0) rank.local_world_size = on_this_host;
  if (rank.node_rank < 0) rank.node_rank = node_rank;
  require(rank.local_rank < rank.local_world_size, ErrorCode::Usage, "LOCAL_RANK",
          "rank {} has local rank {}, but only {} ranks are on its host", rank.rank,
          rank.local_rank, rank.local_world_size);
}

}  // namespace

void call_roll(comm::Store& store, RankEnvironment& rank, double timeout_seconds,
               const WaitingNotice& notice, const std::vector<Setting>& settings) {
  register_rank(store, rank);
  compare_settings(store, rank, settings);
  wait_for_all(store, rank, timeout_seconds, notice);
  count_hosts(store, rank);
}

}  // namespace lockstep::launch
