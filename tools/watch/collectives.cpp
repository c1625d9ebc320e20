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

// The call's parameter, or those whose gradients were put into its buffer since an earlier call
// used the same memory. Where the buffer is the program's own, also those whose gradient the
// optimizer took from there.
std::vector<std::size_t> parameters_in(const RankRecord& rank, const Event& call) {
  if (call.leaf != 0) return {rank.place_of(call.leaf)};
  const auto lies_inside = [&](std::uintptr_t place) {
    return place >= call.memory && place < call.memory + call.num_bytes;
  };
  std::set<std::size_t> found;
  for (auto i = static_cast<std::size_t>(&call - rank.events.data()); i-- > 0;) {
    const Event& event = rank.events[i];
    const bool is_reuse = event.kind == Kind::call && event.memory < call.memory + call.num_bytes &&
                          call.memory < event.memory + event.num_bytes;
    if (is_reuse) break;
    if (event.kind != Kind::gradient || !lies_inside(event.memory)) continue;
    const std::size_t place = rank.place_of(event.leaf);
    if (place < rank.parameters.size()) found.insert(place);
  }
  for (std::size_t i = 0; i < rank.parameters.size() && call.name != "reduce_scatter"; ++i) {
    if (lies_inside(rank.parameters[i].gradient)) found.insert(i);
  }
  return {found.begin(), found.end()};
}

// The events of one collective.
struct Traffic {
  const Event* call = nullptr;  // the first one
  std::set<int> ranks;
  std::map<std::size_t, std::vector<const Event*>> steps;  // arrivals
};

// Every element's parts by rank, as the moves bring them together: bit r stands for rank r's part.
class Parts {
 public:
  Parts(const std::vector<std::size_t>& cuts, const std::set<int>& ranks) : cuts_(cuts) {
    for (const int rank : ranks) {
      held_[rank].assign(cuts.size() - 1, own(rank));
      all_ |= own(rank);
    }
  }

  // All arrivals of a step see what lay there before it.
  void move(const std::vector<const Event*>& arrivals) {
    const auto before = held_;
    for (const Event* event : arrivals) {
      auto& mine = held_.at(event->rank);
      for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
        if (cuts_[i] < event->offset || cuts_[i] >= event->offset + event->num_elements) continue;
        std::uint64_t parts = event->adds ? mine[i] : 0;
        for (const int from : event->from) parts |= before.at(from)[i];
        mine[i] = parts;
      }
    }
  }

  // For an all-reduce and an all-gather everywhere, for a reduce-scatter in each rank's own part.
  bool is_complete(std::string_view operation) const {
    for (auto mine = held_.begin(); mine != held_.end(); ++mine) {
      for (std::size_t i = 0; i + 1 < cuts_.size(); ++i) {
        const std::size_t part = cuts_[i] * held_.size() / std::max<std::size_t>(cuts_.back(), 1);
        const auto owner = std::next(held_.begin(), static_cast<std::ptrdiff_t>(part));
        if (operation == "reduce_scatter" && owner != mine) continue;
        if (mine->second[i] != (operation == "all_gather" ? own(owner->first) : all_)) return false;
      }
    }
    return true;
  }

 private:
  static std::uint64_t own(int rank) { return std::uint64_t{1} << rank; }

  const std::vector<std::size_t>& cuts_;
  std::map<int, std::vector<std::uint64_t>> held_;  // by rank, then by the piece between two cuts
  std::uint64_t all_ = 0;
};

void take_moves(Collective& collective, const Traffic& traffic) {
  std::set<std::size_t> cuts{0, collective.num_elements};
  for (const auto& [step, arrivals] : traffic.steps) {
    collective.num_steps = step + 1;
    for (const Event* event : arrivals) {
      cuts.insert(event->offset);
      cuts.insert(event->offset + event->num_elements);
    }
  }
  collective.cuts.assign(cuts.begin(), cuts.end());
  Parts parts(collective.cuts, traffic.ranks);
  for (const auto& [step, arrivals] : traffic.steps) parts.move(arrivals);
  collective.is_complete = parts.is_complete(collective.operation);
}

// The place of a value; at the end, where it is added, if it is new.
template <typename Value>
std::size_t place_in(std::vector<Value>& values, const Value& value) {
  const auto found = std::ranges::find(values, value);
  const auto place = static_cast<std::size_t>(found - values.begin());
  if (found == values.end()) values.push_back(value);
  return place;
}

// The units of sharded training are gathered in the order of layers and reduced in the reverse one.
// memories: by collective, the rank's buffer.
void name_units(std::vector<Collective>& all, const std::vector<std::uintptr_t>& memories) {
  std::vector<std::vector<std::size_t>> units;  // their parameters
  for (auto collective = all.rbegin(); collective != all.rend(); ++collective) {
    if (collective->operation == "reduce_scatter") place_in(units, collective->parameters);
  }
  std::vector<std::uintptr_t> shards;  // in the order in which they are first gathered
  for (std::size_t c = 0; c < all.size(); ++c) {
    if (all[c].operation == "reduce_scatter") {
      all[c].label = fmt::format("unit {}", place_in(units, all[c].parameters));
    }
    if (all[c].operation != "all_gather") continue;
    const std::size_t unit = place_in(shards, memories[c]);
    if (unit >= units.size()) continue;
    all[c].parameters = units[unit];
    all[c].label = fmt::format("the parameters of unit {}", unit);
  }
}

std::string label_of(const Collective& collective, const RankRecord& rank, std::size_t bucket) {
  if (collective.operation == "broadcast") return "the buffers";
  if (collective.is_bucket) return fmt::format("bucket {}", bucket);
  if (collective.parameters.empty()) {
    return collective.of == Collective::Of::parameters ? "the parameters" : "the partial sums";
  }
  const std::string& name = rank.parameters[collective.parameters[0]].name;
  return collective.of == Collective::Of::parameters ? name : "the gradient of " + name;
}

Collective collective_of(const StepRecording& recording, const Traffic& traffic,
                         std::size_t bucket) {
  const Event& event = *traffic.call;
  const RankRecord& rank = recording.ranks.at(event.rank);
  const bool is_gather = event.name == "all_gather";
  const std::size_t times = is_gather ? traffic.ranks.size() : 1;
  Collective collective{.sequence = event.number,
                        .operation = event.name,
                        .num_elements = event.num_elements * times,
                        .num_bytes = event.num_bytes * times,
                        .averages = event.adds,
                        .parameters = parameters_in(rank, event)};
  const bool has_parameters = !collective.parameters.empty();
  collective.of = is_gather        ? Collective::Of::parameters
                  : has_parameters ? Collective::Of::gradients
                                   : Collective::Of::other;
  collective.is_bucket = has_parameters && !recording.schedule && !is_gather &&
                         (recording.is_wrapped || event.name == "reduce_scatter");
  collective.label = label_of(collective, rank, bucket);
  take_moves(collective, traffic);
  return collective;
}

}  // namespace

std::vector<Collective> collectives_of(const StepRecording& recording) {
  std::map<std::uint64_t, Traffic> traffic;
  std::vector<std::uint64_t> order;  // sequence numbers
  for (const auto& [rank, record] : recording.ranks) {
    for (const Event& event : record.events) {
      const bool is_arrival = event.kind == Kind::arrival && !is_copy(event);
      const bool is_call =
          event.kind == Kind::call && !is_message(event) && event.name != "barrier";
      if (!is_arrival && !is_call) continue;
      Traffic& its = traffic[event.number];
      its.ranks.insert(rank);
      its.ranks.insert(event.from.begin(), event.from.end());
      if (is_arrival) its.steps[event.step].push_back(&event);
      if (!is_call || its.call != nullptr) continue;
      its.call = &event;
      order.push_back(event.number);
    }
  }
  std::vector<Collective> all;
  std::vector<std::uintptr_t> memories;
  std::size_t num_buckets = 0;
  for (const std::uint64_t number : order) {
    all.push_back(collective_of(recording, traffic[number], num_buckets));
    num_buckets += all.back().is_bucket;
    memories.push_back(traffic[number].call->memory);
  }
  if (!recording.schedule) name_units(all, memories);
  return all;
}

}  // namespace lockstep::watch
