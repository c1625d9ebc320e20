// The collectives of a step, put together from what each of their ranks was told.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "tools/watch/story_parts.h"

namespace lockstep::watch {
namespace {

using Kind = Event::Kind;

bool is_message(const Event& event) {
  return event.name == "send" || event.name == "recv";
}

// Parameters whose gradient lies in the call's buffer.
std::vector<std::size_t> parameters_in(const RankRecord& rank, const Event& call) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < rank.parameters.size(); ++i) {
    const std::uintptr_t gradient = rank.parameters[i].gradient;
    const auto lies_inside = [&](std::uintptr_t place) {
      return place >= call.memory && place < call.memory + call.num_bytes;
    };
    bool is_inside = lies_inside(gradient);
    for (const Event& event : rank.events) {
      const bool is_its = event.kind == Kind::gradient && event.leaf == rank.parameters[i].leaf;
      is_inside = is_inside || (is_its && lies_inside(event.memory));
    }
    if (is_inside) found.push_back(i);
  }
  return found;
}

// Every element's parts by rank, as the moves bring them together: bit r stands for rank r's part.
class Parts {
 public:
  Parts(const Collective& collective, std::size_t world_size)
      : cuts_(collective.cuts), held_(world_size) {
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      held_[rank].assign(std::max<std::size_t>(cuts_.size(), 1) - 1, std::uint64_t{1} << rank);
    }
  }

  // All arrivals of a step see what lay there before it.
  void move(const std::vector<const Event*>& arrivals) {
    const auto before = held_;
    for (const Event* event : arrivals) {
      auto& mine = held_.at(static_cast<std::size_t>(event->rank));
      for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
        if (cuts_[i] < event->offset || cuts_[i] >= event->offset + event->num_elements) continue;
        std::uint64_t parts = event->adds ? mine[i] : 0;
        for (const int from : event->from) parts |= before.at(static_cast<std::size_t>(from))[i];
        mine[i] = parts;
      }
    }
  }

  // For an all-reduce everywhere, for a reduce-scatter in each rank's own part.
  bool is_complete(std::string_view operation, std::size_t num_elements) const {
    const std::size_t world_size = held_.size();
    const std::uint64_t all =
        world_size >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << world_size) - 1;
    for (std::size_t rank = 0; rank < world_size; ++rank) {
      for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
        const std::size_t part = cuts_[i] * world_size / std::max<std::size_t>(num_elements, 1);
        if (operation == "reduce_scatter" && part != rank) continue;
        const bool is_there = operation == "all_gather"
                                  ? held_[rank][i] == (std::uint64_t{1} << part)
                                  : held_[rank][i] == all;
        if (!is_there) return false;
      }
    }
    return true;
  }

 private:
  std::vector<std::size_t> cuts_;
  std::vector<std::vector<std::uint64_t>> held_;  // [rank][piece between two cuts]
};

using ArrivalsOfStep = std::map<std::size_t, std::vector<const Event*>>;

void take_moves(Collective& collective, const ArrivalsOfStep& steps, std::size_t world_size) {
  std::set<std::size_t> cuts{0, collective.num_elements};
  for (const auto& [step, arrivals] : steps) {
    collective.num_steps = step + 1;
    for (const Event* event : arrivals) {
      cuts.insert(event->offset);
      cuts.insert(event->offset + event->num_elements);
    }
  }
  collective.cuts.assign(cuts.begin(), cuts.end());
  Parts parts(collective, world_size);
  for (const auto& [step, arrivals] : steps) parts.move(arrivals);
  collective.is_complete = parts.is_complete(collective.operation, collective.num_elements);
}

// The units of sharded training are gathered in the order of layers and reduced in the reverse one.
void find_gathered_parameters(std::vector<Collective>& all, const RankRecord& rank) {
  std::vector<std::vector<std::size_t>> units;
  for (const Collective& collective : all) {
    if (collective.operation == "reduce_scatter") units.push_back(collective.parameters);
  }
  std::size_t unit_behind = units.size();
  for (Collective& collective : all) {
    if (collective.operation != "reduce_scatter") continue;
    collective.label = fmt::format("unit {}", --unit_behind);
  }
  std::ranges::reverse(units);
  std::vector<std::uintptr_t> shards;  // in the order in which they are first gathered
  for (const Event& event : rank.events) {
    if (event.kind != Kind::call || event.name != "all_gather") continue;
    if (std::ranges::find(shards, event.memory) == shards.end()) shards.push_back(event.memory);
    const auto unit =
        static_cast<std::size_t>(std::ranges::find(shards, event.memory) - shards.begin());
    if (unit >= units.size()) continue;
    for (Collective& collective : all) {
      if (collective.sequence != event.number || collective.operation != "all_gather") continue;
      collective.parameters = units[unit];
      collective.label = fmt::format("the parameters of unit {}", unit);
    }
  }
}

}  // namespace

std::vector<Collective> collectives_of(const StepRecording& recording) {
  const RankRecord& first = recording.ranks.begin()->second;
  std::map<std::uint64_t, ArrivalsOfStep> arrivals;
  for (const auto& [rank, record] : recording.ranks) {
    for (const Event& event : record.events) {
      if (event.kind != Kind::arrival || is_copy(event)) continue;
      arrivals[event.number][event.step].push_back(&event);
    }
  }
  std::vector<Collective> all;
  std::size_t num_buckets = 0;
  for (const Event& event : first.events) {
    if (event.kind != Kind::call || is_message(event) || event.name == "barrier") continue;
    const std::size_t world_size = recording.ranks.size();
    const std::size_t times = event.name == "all_gather" ? world_size : 1;
    Collective collective{.sequence = event.number,
                          .operation = event.name,
                          .num_elements = event.num_elements * times,
                          .num_bytes = event.num_bytes * times,
                          .averages = event.adds,
                          .parameters = parameters_in(first, event)};
    const bool is_of_gradients = !collective.parameters.empty();
    collective.of = event.name == "all_gather" ? Collective::Of::parameters
                    : is_of_gradients          ? Collective::Of::gradients
                                               : Collective::Of::other;
    collective.is_bucket =
        is_of_gradients && (recording.is_wrapped || event.name == "reduce_scatter");
    collective.label = event.name == "broadcast"    ? "the buffers"
                       : event.name == "all_gather" ? "the parameters"
                       : collective.is_bucket       ? fmt::format("bucket {}", num_buckets++)
                       : is_of_gradients
                           ? "the gradient of " + first.parameters[collective.parameters[0]].name
                           : "the partial sums";
    take_moves(collective, arrivals[event.number], world_size);
    all.push_back(std::move(collective));
  }
  find_gathered_parameters(all, first);
  return all;
}

}  // namespace lockstep::watch
