#include "tools/doctor/records.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <sstream>
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

}  // namespace lockstep::doctor
