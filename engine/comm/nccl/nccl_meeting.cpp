#include "engine/comm/nccl/nccl_meeting.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <sstream>
#include <vector>

#include "engine/comm/comm_errors.h"
#include "engine/comm/host_identity.h"
#include "engine/comm/nccl/nccl_library.h"
#include "engine/core/error.h"
#include "engine/runtime/wait.h"

namespace lockstep::comm::nccl {
namespace {

// What a rank says of itself.
struct Card {
  int world_size = 0;
  std::string version;  // of NCCL
  std::string gpu;      // its UUID
  int process = 0;
  std::string host;
};

std::string to_text(const Card& card) {
  return fmt::format("{} {} {} {} {}", card.world_size, card.version, card.gpu, card.process,
                     card.host);
}

Card parse_card(const std::string& text) {
  Card card;
  std::istringstream words(text);
  words >> card.world_size >> card.version >> card.gpu >> card.process >> card.host;
  return card;
}

std::string card_key(const NcclGroupOptions& options, int rank) {
  return key_of(options, fmt::format("card/{}", rank));
}

// Rank 0's answer: a letter, then the id or the reason.
constexpr char kIsSharing = 's';
constexpr char kHasOwnGpus = 'o';
constexpr char kDeviceError = 'd';
constexpr char kCommError = 'c';

std::vector<Card> read_cards(const NcclGroupOptions& options, runtime::Deadline deadline) {
  std::vector<Card> cards;
  for (int rank = 0; rank < options.world_size; ++rank) {
    cards.push_back(parse_card(options.store->get(card_key(options, rank), deadline)));
  }
  return cards;
}

std::string name_of(std::size_t rank, const Card& card) {
  return fmt::format("rank {} (process {} on {})", rank, card.process, card.host);
}

std::string answer_to(const NcclGroupOptions& options, const std::vector<Card>& cards) {
  bool shares_gpus = false;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    const Card& first = cards.front();
    if (card.world_size != first.world_size || card.version != first.version) {
      return fmt::format(
          "{}{} has NCCL {} and world size {} while {} has NCCL {} and world size "
          "{}; start all ranks alike",
          kCommError, name_of(rank, card), card.version, card.world_size, name_of(0, first),
          first.version, first.world_size);
    }
    for (std::size_t other = 0; other < rank; ++other) {
      if (cards[other].gpu != card.gpu) continue;
      shares_gpus = true;
      const bool are_threads =
          cards[other].process == card.process && cards[other].host == card.host;
      if (options.sharing == GpuSharing::allow && !are_threads) continue;
      return fmt::format(
          "{}ranks {} and {} are both on the GPU {} of {}, and NCCL wants one for each rank; use "
          "--comm own, which shares GPUs{}",
          kDeviceError, other, rank, card.gpu, card.host,
          are_threads ? "" : ", or --nccl-share-gpu to check results (never for timing)");
    }
  }
  ncclUniqueId id;
  check("ncclGetUniqueId", library().get_unique_id(&id));
  return (shares_gpus ? kIsSharing : kHasOwnGpus) + nccl::to_text(id);
}

void show_card(const NcclGroupOptions& options, const Card& mine) {
  const std::string text = to_text(mine);
  const std::string shown = options.store->set_if_absent(card_key(options, options.rank), text);
  if (shown == text) return;
  const Card first = parse_card(shown);
  throw duplicate_rank("nccl", options.rank, name_of_process(first.process, first.host));
}

[[noreturn]] void fail_missing(const NcclGroupOptions& options) {
  const std::string missing = list_ranks(options.world_size, [&](int rank) {
    return !options.store->try_get(card_key(options, rank));
  });
  fail(ErrorCode::Timeout, "nccl", "rank {} waited {} s for {} of {} ranks to come to NCCL",
       options.rank, options.timeout_seconds, missing.empty() ? "rank 0's answer" : missing,
       options.world_size);
}

}  // namespace

std::string key_of(const NcclGroupOptions& options, std::string_view what) {
  return fmt::format("nccl/{}/{}", options.group, what);
}

std::string to_text(const ncclUniqueId& id) {
  return std::string(id.internal, sizeof id.internal);
}

ncclUniqueId parse_unique_id(const std::string& text) {
  ncclUniqueId id;
  require(text.size() == sizeof id.internal, ErrorCode::Comm, "nccl",
          "the store holds an id of {} bytes, and NCCL's have {}", text.size(), sizeof id.internal);
  std::memcpy(id.internal, text.data(), text.size());
  return id;
}

Meeting meet(const NcclGroupOptions& options, const std::string& gpu_uuid) {
  Card mine;
  mine.world_size = options.world_size;
  mine.version = version_of(library());
  mine.gpu = gpu_uuid;
  mine.process = getpid();
  mine.host = host_name_of(host_identity());
  show_card(options, mine);
  const runtime::Deadline deadline = runtime::deadline_after(options.timeout_seconds);
  const std::string answer_key = key_of(options, "answer");
  std::string answer;
  try {
    if (options.rank == 0) {
      options.store->set(answer_key, answer_to(options, read_cards(options, deadline)));
    }
    answer = options.store->get(answer_key, deadline);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::Timeout) throw;
    fail_missing(options);
  }
  const std::string text = answer.substr(1);
  if (answer[0] == kDeviceError) fail(ErrorCode::Device, "nccl", "{}", text);
  if (answer[0] == kCommError) fail(ErrorCode::Comm, "nccl", "{}", text);
  // Rank 0 may have fewer ranks in mind, and not know of this one.
  const Card first = parse_card(options.store->get(card_key(options, 0), deadline));
  require(first.world_size == options.world_size, ErrorCode::Comm, "nccl",
          "rank {} has world size {} while rank 0 has {}; start all ranks alike", options.rank,
          options.world_size, first.world_size);
  return {parse_unique_id(text), answer[0] == kIsSharing};
}

}  // namespace lockstep::comm::nccl
