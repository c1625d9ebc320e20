#include "tools/doctor/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "engine/core/files.h"

namespace lockstep::doctor {
namespace {

using nlohmann::json;

double number_of(const json& value) {
  return value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

record::Sketch sketch_of(const json& values) {
  record::Sketch sketch{};
  for (std::size_t i = 0; i < sketch.size(); ++i) sketch[i] = number_of(values.at(i));
  return sketch;
}

std::optional<int> whole_number(const json& text) {
  const std::string digits = text.get<std::string>();
  if (digits.empty()) return {};
  return std::atoi(digits.c_str());
}

ParameterRecord parameter_of(const json& event) {
  ParameterRecord parameter;
  parameter.leaf = event.at("leaf");
  parameter.shape = event.at("shape");
  parameter.num_elements = event.at("elements");
  parameter.has_gradient = event.at("has_gradient");
  parameter.used = sketch_of(event.at("used"));
  parameter.arrived = event.at("arrived");
  parameter.moved = event.at("moved");
  parameter.unfinished = event.at("unfinished");
  parameter.weight_moved = event.at("weight_moved");
  parameter.was_discarded = event.at("discarded");
  parameter.holds_used_one = event.at("stale");
  parameter.before = event.at("before");
  for (const json& part : event.at("parts")) {
    parameter.parts.push_back({part.at("pass"), sketch_of(part.at("sketch"))});
  }
  return parameter;
}

LossRecord loss_of(const json& event) {
  return {event.at("rows"),     event.at("mean"),
          event.at("upstream"), number_of(event.at("value").at(0)),
          event.at("hashes"),   event.at("labels")};
}

StepRecord step_of(const json& event, const Origin& origin) {
  StepRecord step;
  step.origin = origin;
  step.optimizer = event.at("optimizer");
  step.step = event.at("step");
  step.learning_rate = number_of(event.at("learning_rate"));
  step.device = event.at("device");
  step.was_clipped = event.at("clipped");
  step.collective_bytes = event.at("collective_bytes");
  step.sent_bytes = event.at("sent_bytes");
  step.buffers = event.at("buffers").get<std::vector<std::uint64_t>>();
  step.after = event.at("after").get<std::vector<std::uint64_t>>();
  for (const json& pass : event.at("passes")) {
    std::vector<LossRecord>& losses = step.passes[pass.at("pass")];
    for (const json& loss : pass.at("losses")) losses.push_back(loss_of(loss));
  }
  for (const json& leaf : event.at("reached")) step.reached[leaf.at(0)] = leaf.at(1);
  for (const json& p : event.at("parameters")) step.parameters.push_back(parameter_of(p));
  return step;
}

// A call is by a rank of the communicator's group, whatever thread makes it.
Origin communicator_of(const json& event, Origin origin) {
  origin.group = event.at("of_group");
  origin.rank = event.at("of_rank");
  return origin;
}

CallRecord call_of(const json& event, const Origin& origin) {
  CallRecord call;
  call.origin = communicator_of(event, origin);
  call.operation = event.at("operation");
  call.sequence = event.at("sequence");
  call.is_message = event.contains("peer");
  const std::string detail = event.at("detail");
  call.is_averaging = detail == "sum" || detail == "average";
  call.text = fmt::format(
      "{} of {} {}{}", call.operation, event.at("elements").get<std::uint64_t>(),
      event.at("dtype").get<std::string>(), detail.empty() ? "" : fmt::format(" ({})", detail));
  if (call.operation == "barrier") call.text = call.operation;
  return call;
}

class Reader {
 public:
  explicit Reader(Records& records) : records_(records) {}

  void take(const json& event) {
    const std::string name = event.at("event");
    Origin origin;
    origin.process = event.at("process");
    origin.number = event.at("number");
    if (name == "process") return take_process(event, origin);
    origin.group = event.at("group");
    origin.rank = event.at("rank");
    origin.world_size = event.at("world");
    if (name == "step") records_.steps.push_back(step_of(event, origin));
    if (name == "call") records_.calls.push_back(call_of(event, origin));
    if (name == "done") take_done(event, origin);
    if (name == "wrapped") {
      records_.wrapped.push_back(
          {origin, event.at("wrapper"), {}, event.at("leaves"), event.at("inside")});
    }
    if (name == "unwrapped") take_unwrapped(event, origin);
    if (name == "moved") {
      records_.moved.push_back({origin, event.at("from"), event.at("to"), event.at("leaves")});
    }
    if (name == "loaded") {
      records_.loaded.push_back({origin, event.at("model"), event.at("loaded"), event.at("missing"),
                                 event.at("unexpected")});
    }
    if (name == "saved") records_.saved.push_back({origin, event.at("path")});
    if (name == "member") {
      records_.members.push_back(
          {origin, event.at("module"), event.at("device"), event.at("bytes")});
    }
    if (name == "sampler") {
      records_.samplers.push_back({origin, event.at("kind"), event.at("samples"),
                                   event.at("of_world"), event.at("of_rank"), event.at("seed"),
                                   event.at("epoch"), event.at("shuffled")});
    }
    if (name == "intended") {
      records_.intended.push_back({event.at("invariant"), event.at("reason")});
    }
    if (name == "schedule") {
      records_.schedules.push_back(
          {origin, number_of(event.at("base")), event.at("step"), number_of(event.at("rate"))});
    }
  }

 private:
  void take_process(const json& event, const Origin& origin) {
    records_.processes[origin.process] = {whole_number(event.at("rank")),
                                          whole_number(event.at("local_rank")),
                                          whole_number(event.at("local_world"))};
  }
  void take_done(const json& event, const Origin& origin) {
    const Origin by = communicator_of(event, origin);
    const std::uint64_t sequence = event.at("sequence");
    for (auto call = records_.calls.rbegin(); call != records_.calls.rend(); ++call) {
      if (call->is_message || call->sequence != sequence || call->origin.rank != by.rank ||
          call->origin.group != by.group) {
        continue;
      }
      call->is_done = true;
      return;
    }
  }
  void take_unwrapped(const json& event, const Origin& origin) {
    const std::uint64_t wrapper = event.at("wrapper");
    for (WrappedRecord& wrapped : records_.wrapped) {
      const bool is_it = wrapped.wrapper == wrapper && wrapped.origin.process == origin.process;
      if (is_it && !wrapped.gone) wrapped.gone = origin.number;
    }
  }

  Records& records_;
};

}  // namespace

Records read_records(const std::filesystem::path& folder) {
  Records records;
  Reader reader(records);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::ranges::sort(files);
  for (const std::filesystem::path& file : files) {
    std::istringstream lines(read_text_file(file, "doctor"));
    for (std::string line; std::getline(lines, line);) {
      const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (!event.is_discarded()) reader.take(event);
    }
  }
  return records;
}

}  // namespace lockstep::doctor
