#include "tools/doctor/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include "engine/core/files.h"

namespace lockstep::doctor {

namespace {

using nlohmann::json;

std::optional<int> whole_number(const std::string& digits) {
  if (digits.empty()) return {};
  return std::atoi(digits.c_str());
}

template <typename Record>
void read(const json& event, std::vector<Record>& records) {
  records.push_back(event.get<Record>());
  records.back().origin = event.get<Origin>();
}

void take_done(const json& event, Records& records) {
  const Origin by = event.get<Origin>();
  const std::uint64_t sequence = event.at("sequence");
  const auto call =
      std::find_if(records.calls.rbegin(), records.calls.rend(), [&](const CallRecord& candidate) {
        return !candidate.is_message && candidate.sequence == sequence &&
               candidate.origin.rank == by.rank && candidate.origin.group == by.group;
      });
  if (call != records.calls.rend()) call->is_done = true;
}

void take_unwrapped(const json& event, Records& records) {
  const Origin by = event.get<Origin>();
  const std::uint64_t wrapper = event.at("wrapper");
  for (WrappedRecord& wrapped : records.wrapped) {
    const bool is_it = wrapped.wrapper == wrapper && wrapped.origin.process == by.process;
    if (is_it && !wrapped.gone) wrapped.gone = by.number;
  }
}

void take(const json& event, Records& records) {
  const std::string name = event.at("event");
  if (name == "process") {
    records.processes[event.at("process")] = {whole_number(event.at("rank")),
                                              whole_number(event.at("local_rank")),
                                              whole_number(event.at("local_world_size"))};
  }
  if (name == "step") read(event, records.steps);
  if (name == "call") read(event, records.calls);
  if (name == "done") take_done(event, records);
  if (name == "wrapped") read(event, records.wrapped);
  if (name == "unwrapped") take_unwrapped(event, records);
  if (name == "moved") read(event, records.moved);
  if (name == "loaded") read(event, records.loaded);
  if (name == "saved") read(event, records.saved);
  if (name == "member") read(event, records.members);
  if (name == "sampler") read(event, records.samplers);
  if (name == "schedule") read(event, records.schedules);
  if (name == "intended") read(event, records.intended);
}

// JSON has no NaN: it is written as null.
bool read_null_as_nan(int, json::parse_event_t, json& value) {
  if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
  return true;
}

}  // namespace

Records read_records(const std::filesystem::path& folder) {
  Records records;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const std::filesystem::path& file : files) {
    std::istringstream lines(read_text_file(file, "doctor"));
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line, read_null_as_nan, /*allow_exceptions=*/false);
      if (!event.is_discarded()) take(event, records);
    }
  }
  return records;
}

namespace {

bool have_equal_shapes(const Trainer& a, const Trainer& b) {
  return std::ranges::equal(a.first().parameters, b.first().parameters, {}, &ParameterRecord::shape,
                            &ParameterRecord::shape);
}

using ByRank = std::map<int, std::vector<const Trainer*>>;

// Matches the k-th trainers of all ranks, as long as every rank has one.
void match(const ByRank& of_group, Training::Link link, std::vector<Training>& trainings) {
  const auto world_size =
      static_cast<std::size_t>(of_group.begin()->second.front()->first().origin.world_size);
  std::size_t num_matched = of_group.size() == world_size ? SIZE_MAX : 0;
  for (const auto& [rank, mine] : of_group) num_matched = std::min(num_matched, mine.size());
  for (std::size_t k = 0; k < num_matched; ++k) {
    Training training{{}, link};
    for (const auto& [rank, mine] : of_group) training.ranks.push_back(mine[k]);
    const auto fits = [&](const Trainer* other) {
      return have_equal_shapes(*training.ranks[0], *other);
    };
    if (!std::ranges::all_of(training.ranks, fits)) continue;
    const bool is_local = std::ranges::all_of(training.ranks, &Trainer::exchanges_weights);
    if (is_local) training.link = Training::Link::weights;
    trainings.push_back(std::move(training));
  }
  for (const auto& [rank, mine] : of_group) {
    for (std::size_t k = num_matched; k < mine.size(); ++k) {
      trainings.push_back({{mine[k]}, Training::Link::none});
    }
  }
}

}  // namespace

bool Trainer::exchanges() const {
  return std::ranges::any_of(steps, [](const StepRecord* step) {
    std::uint64_t num_elements = 0;
    for (const ParameterRecord& parameter : step->parameters) {
      if (parameter.moved != 0 || parameter.weight_moved != 0) return true;
      num_elements += parameter.num_elements;
    }
    return step->collective_bytes + step->sent_bytes >= num_elements * sizeof(float);
  });
}

bool Trainer::exchanges_weights() const {
  bool is_any_moved = false;
  for (const StepRecord* step : steps) {
    for (const ParameterRecord& parameter : step->parameters) {
      if (parameter.moved != 0) return false;
      is_any_moved = is_any_moved || (step->step > 0 && parameter.weight_moved != 0);
    }
  }
  return is_any_moved;
}

std::size_t Training::num_steps() const {
  std::size_t count = SIZE_MAX;
  for (const Trainer* trainer : ranks) count = std::min(count, trainer->steps.size());
  return count;
}

std::vector<Trainer> find_trainers(const Records& records) {
  using Key = std::tuple<std::uint64_t, std::string, int, std::uint64_t>;
  std::map<Key, Trainer> by_optimizer;
  for (const StepRecord& step : records.steps) {
    const Origin& by = step.origin;
    by_optimizer[{by.process, by.group, by.rank, step.optimizer}].steps.push_back(&step);
  }
  std::vector<Trainer> trainers;
  for (auto& [key, trainer] : by_optimizer) trainers.push_back(std::move(trainer));
  return trainers;
}

bool is_wrapped(const Records& records, const Origin& when,
                const std::vector<std::uint64_t>& leaves) {
  return std::ranges::any_of(records.wrapped, [&](const WrappedRecord& wrapped) {
    return wrapped.origin.process == when.process && wrapped.origin.number < when.number &&
           (!wrapped.gone || *wrapped.gone > when.number) &&
           std::ranges::find_first_of(wrapped.leaves, leaves) != wrapped.leaves.end();
  });
}

std::vector<Training> find_trainings(const Records& records, const std::vector<Trainer>& trainers) {
  std::map<std::pair<std::string, bool>, ByRank> groups;
  std::vector<Training> trainings;
  for (const Trainer& trainer : trainers) {
    const Origin& by = trainer.first().origin;
    const std::vector<std::uint64_t> leaves{trainer.first().parameters.front().leaf};
    if (by.world_size == 1) {
      trainings.push_back({{&trainer}, Training::Link::none});
    } else {
      groups[{by.group, trainer.exchanges() || is_wrapped(records, by, leaves)}][by.rank].push_back(
          &trainer);
    }
  }
  for (const auto& [key, of_group] : groups) {
    match(of_group, key.second ? Training::Link::exchange : Training::Link::none, trainings);
  }
  return trainings;
}

std::string name_of(const StepRecord& step, std::size_t parameter) {
  return fmt::format("parameter {} {}", parameter, step.parameters[parameter].shape);
}

std::uint64_t num_rows(const StepRecord& step) {
  std::uint64_t count = 0;
  for (const auto& [pass, losses] : step.passes) {
    for (const LossRecord& loss : losses) count += loss.num_rows;
  }
  return count;
}

}  // namespace lockstep::doctor
