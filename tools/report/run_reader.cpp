#include "tools/report/run_reader.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/shown_text.h"
#include "tools/report/json_fields.h"

namespace lockstep::tools {
namespace {

constexpr std::string_view kSchema = "lockstep.run/1";
constexpr std::size_t kMostDevices = 1'000'000;

// Says what the file is, where it is no run file.
void require_run_file(const nlohmann::ordered_json& json, const std::string& file,
                      std::string_view operation) {
  const bool has_schema = json.is_object() && json.contains("schema") && json["schema"].is_string();
  if (has_schema) {
    const std::string schema = json["schema"];
    const bool is_newer = schema.starts_with("lockstep.run/");
    require(schema == kSchema, ErrorCode::Io, operation,
            "'{}' has the schema '{}', expected '{}': {}", file, shown(schema), kSchema,
            is_newer ? "another version of Lockstep wrote it; make it again with this one"
                     : "give the file that train or compare wrote with --json");
    return;
  }
  const bool is_trace = json.is_object() && json.contains("traceEvents");
  fail(ErrorCode::Io, operation, "'{}' is {}, expected a run file of schema '{}'{}", file,
       is_trace ? "a timeline" : "another program's JSON: it names no schema", kSchema,
       is_trace ? "; `lockstep report` takes a timeline by --trace-file"
                : ", as train and compare write it with --json");
}

FileHost read_host(const JsonFields& fields) {
  FileHost host;
  host.cpu = fields.text_or_empty("cpu");
  host.cores = fields.count_or("cores", 1);
  host.memory_bytes = fields.optional_number("memory_bytes").value_or(0);
  host.os = fields.text_or_empty("os");
  if (fields.has("gpus")) {
    for (const JsonFields& gpu : fields.objects("gpus")) host.gpus.push_back(gpu.text("name"));
  }
  host.version = fields.text_or_empty("version");
  host.build = fields.text_or_empty("build");
  return host;
}

std::optional<trace::StepBreakdown> read_breakdown(const JsonFields& row, double step_seconds) {
  if (!row.has("breakdown_seconds")) return std::nullopt;
  const JsonFields fields = row.object("breakdown_seconds");
  trace::StepBreakdown breakdown;
  for (const auto& [name, seconds] : trace::kBreakdownParts) {
    breakdown.*seconds = fields.number(name.data());
  }
  breakdown.step = step_seconds;
  breakdown.overlapped_comm = row.optional_number("overlapped_comm_seconds").value_or(0);
  breakdown.comm = breakdown.exposed_comm + breakdown.overlapped_comm;
  return breakdown;
}

FileRow read_row(const JsonFields& fields) {
  FileRow row;
  row.mode = fields.text("mode");
  if (fields.has("kind")) row.kind = fields.text("kind");
  if (row.kind != "measured" && row.kind != "acted" && row.kind != "predicted") {
    fields.refuse("kind", "measured, acted or predicted");
  }
  row.slow_motion = fields.optional_number("slow_motion").value_or(1);
  row.devices = fields.count("devices");
  if (row.devices > kMostDevices) fields.refuse("devices", "a million at most");
  row.physical_devices = fields.count_or("physical_devices", row.devices);
  row.threads_per_device = fields.count_or("threads_per_device", 1);
  row.batch = fields.count("batch");
  row.contended = fields.optional_flag("contended");
  row.epoch_seconds = fields.numbers("epoch_seconds");
  row.median_epoch_seconds = fields.optional_number("median_epoch_seconds");
  row.step_seconds = fields.number("step_seconds");
  if (row.step_seconds == 0) fields.refuse("step_seconds", "more than 0");
  row.speedup = fields.optional_number("speedup");
  row.ideal_speedup = fields.optional_number("ideal_speedup");
  row.efficiency = fields.optional_number("efficiency");
  row.busy_fraction = fields.numbers("busy_fraction");
  row.breakdown = read_breakdown(fields, row.step_seconds);
  row.comm_bytes_per_device_per_step =
      fields.optional_number("comm_bytes_per_device_per_step").value_or(0);
  row.peak_bytes = fields.numbers("peak_bytes");
  if (fields.has("verdict")) row.verdict_equal = fields.object("verdict").optional_flag("equal");
  row.final_loss = fields.optional_number("final_loss");
  row.test_accuracy = fields.optional_number("test_accuracy");
  return row;
}

FileWorkload read_workload(const JsonFields& fields) {
  FileWorkload workload;
  workload.batch = fields.count("batch");
  workload.optimizer_seconds = fields.optional_number("optimizer_seconds").value_or(0);
  for (const JsonFields& layer : fields.objects("layers")) {
    workload.layers.push_back({layer.text("name"), layer.number("forward_seconds"),
                               layer.number("backward_seconds"), layer.number("parameter_bytes")});
  }
  return workload;
}

}  // namespace

std::string RunFile::config_value(std::string_view flag) const {
  for (const auto& [name, value] : config) {
    if (name == flag) return value.value_or("");
  }
  return {};
}

RunFile read_run_file(const std::filesystem::path& path, std::string_view operation) {
  const nlohmann::ordered_json json = parse_json_file(path, operation);
  const std::string name = shown(path.string());
  require_run_file(json, name, operation);
  const JsonFields fields(json, "", name, operation);
  RunFile file;
  file.path = path;
  file.date = fields.text_or_empty("date");
  file.command = fields.texts("command");
  if (fields.has("host")) file.host = read_host(fields.object("host"));
  if (fields.has("config")) {
    for (const auto& [flag, value] : fields.object("config").json().items()) {
      std::optional<std::string> text;
      if (!value.is_null()) text = value.is_string() ? value.get<std::string>() : value.dump();
      file.config.emplace_back(flag, text);
    }
  }
  for (const JsonFields& row : fields.objects("rows")) file.rows.push_back(read_row(row));
  if (file.rows.empty()) fields.refuse("rows", "a list with at least one row");
  if (fields.has("workload")) file.workload = read_workload(fields.object("workload"));
  return file;
}

std::string name_of(const FileRow& row) {
  return fmt::format("{} x{}", row.mode, row.devices);
}

}  // namespace lockstep::tools
