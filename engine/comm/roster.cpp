#include "engine/comm/roster.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <sstream>

#include "engine/comm/absent_rank.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/rank_taken.h"
#include "engine/comm/store/token_handshake.h"
#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// Changes with everything that ranks of one group must agree on: the layout of shared memory, the
// frames of TCP, CallHeader, these cards.
constexpr int kProtocol = 3;

constexpr const char* kNoLink = "none";

std::string my_protocol() {
  return fmt::format("lockstep-{}-{}", kProtocol,
                     std::endian::native == std::endian::little ? "little" : "big");
}

std::string key_of(const ProcessGroupOptions& options, std::string_view what) {
  return fmt::format("group/{}/{}", options.group, what);
}

std::string card_key(const ProcessGroupOptions& options, int rank) {
  return key_of(options, fmt::format("card/{}", rank));
}

// One line; the host comes last since it holds spaces.
std::string to_text(const RankCard& card) {
  return fmt::format("{} {} {} {} {} {} {} {}\n", card.protocol, card.world_size, card.transport,
                     card.link, card.clock, card.process, card.nonce, card.host);
}

RankCard parse_card(const std::string& line) {
  RankCard card;
  std::istringstream words(line);
  words >> card.protocol >> card.world_size >> card.transport >> card.link >> card.clock >>
      card.process >> card.nonce >> std::ws;
  std::getline(words, card.host);
  return card;
}

std::string describe(int rank, const RankCard& card) {
  return fmt::format("rank {} ({})", rank, name_of_process(card.process, host_name_of(card.host)));
}

// Ends the rendezvous of all ranks, and this call.
[[noreturn]] void refuse(Store& store, const std::string& why) {
  const Error error(ErrorCode::Comm, "process group", why);
  store.abort(error);
  throw error;
}

void show_card(const ProcessGroupOptions& options, const RankCard& mine) {
  const std::string text = to_text(mine);
  const std::string shown = options.store->set_if_absent(card_key(options, options.rank), text);
  if (shown == text) return;
  const RankCard first = parse_card(shown);
  throw rank_taken("process group", options.rank,
                   name_of_process(first.process, host_name_of(first.host)));
}

void wait_for_cards(const ProcessGroupOptions& options, const runtime::Deadline& deadline) {
  std::vector<std::string> keys;
  for (int rank = 0; rank < options.world_size; ++rank) keys.push_back(card_key(options, rank));
  try {
    options.store->wait(keys, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    const std::string missing = list_ranks(options.world_size, [&](int rank) {
      return !options.store->try_get(keys[static_cast<std::size_t>(rank)]);
    });
    fail(ErrorCode::Timeout, "process group",
         "rank {} waited {} s for {} of {} ranks to come; start them, or correct WORLD_SIZE",
         options.rank, options.timeout_seconds, missing, options.world_size);
  }
}

void require_agreement(Store& store, const std::vector<RankCard>& cards) {
  const RankCard& first = cards.front();
  for (std::size_t r = 1; r < cards.size(); ++r) {
    const RankCard& card = cards[r];
    const auto differ = [&](const char* what, const auto& theirs, const auto& ours) {
      if (theirs == ours) return;
      refuse(store, fmt::format("{} has {} {} while {} has {}; start all ranks alike",
                                describe(static_cast<int>(r), card), what, theirs,
                                describe(0, first), ours));
    };
    differ("protocol", card.protocol, first.protocol);
    differ("world size", card.world_size, first.world_size);
    differ("transport", card.transport, first.transport);
    differ("modelled link", card.link, first.link);
    if (card.link == kNoLink || card.clock == first.clock) continue;
    refuse(store, fmt::format("{} and {} are on two machines, and a modelled link needs the clock "
                              "that processes of one machine share; leave the link out",
                              describe(0, first), describe(static_cast<int>(r), card)));
  }
}

}  // namespace

std::vector<RankCard> exchange_cards(const ProcessGroupOptions& options) {
  Store& store = *options.store;
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  RankCard mine;
  mine.protocol = my_protocol();
  mine.world_size = options.world_size;
  mine.transport = to_string(options.transport);
  mine.link = options.link ? to_string(*options.link) : kNoLink;
  mine.clock = boot_id();
  mine.process = getpid();
  mine.nonce = make_token().substr(0, 16);
  mine.host = options.host.empty() ? host_identity() : options.host;
  show_card(options, mine);
  const std::string roster_key = key_of(options, "roster");
  if (options.rank == 0) {
    wait_for_cards(options, deadline);
    std::vector<RankCard> cards;
    std::string roster;
    for (int rank = 0; rank < options.world_size; ++rank) {
      const std::string text = store.get(card_key(options, rank), deadline);
      cards.push_back(parse_card(text));
      roster += text;
    }
    require_agreement(store, cards);
    store.set(roster_key, roster);
    return cards;
  }
  std::istringstream roster([&] {
    try {
      return store.get(roster_key, deadline);
    } catch (const Error& error) {
      // Rank 0 may just have been as patient: its answer is the better one.
      if (error.code() == ErrorCode::Timeout) wait_for_cards(options, runtime::Clock::now());
      throw;
    }
  }());
  std::vector<RankCard> cards;
  for (std::string line; std::getline(roster, line);) cards.push_back(parse_card(line));
  // Rank 0 has fewer or more ranks in mind, and does not know of this one.
  if (cards.size() != static_cast<std::size_t>(options.world_size)) {
    refuse(store,
           fmt::format("rank {} has world size {} while rank 0 has {}; start all ranks alike",
                       options.rank, options.world_size, cards.size()));
  }
  return cards;
}

std::vector<int> number_hosts(const std::vector<RankCard>& cards) {
  std::vector<std::string> known;
  std::vector<int> hosts;
  for (const RankCard& card : cards) {
    const auto found = std::ranges::find(known, card.host);
    hosts.push_back(static_cast<int>(found - known.begin()));
    if (found == known.end()) known.push_back(card.host);
  }
  return hosts;
}

}  // namespace lockstep::comm
