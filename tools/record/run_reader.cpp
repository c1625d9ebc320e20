#include "tools/record/run_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "engine/core/error.h"
#include "engine/core/json_file.h"
#include "engine/core/text.h"

namespace lockstep::tools {
namespace {

constexpr std::string_view kSchema = "lockstep.run/1";
constexpr std::size_t kMostRows = 1'000;
constexpr double kMostBytes = 1e9;

// If the file is not a run file, says what it is.
void require_run_file(const JsonFile& file) {
  const nlohmann::json& json = file.json();
  const bool has_schema = json.is_object() && json.contains("schema") && json["schema"].is_string();
  if (has_schema) {
    const std::string schema = json["schema"];
    if (schema == kSchema) return;
    file.fail_at(
        "schema",
        fmt::format("the schema is '{}', expected '{}': {}", shown(schema), kSchema,
                    schema.starts_with("lockstep.run/")
                        ? "another version of Lockstep wrote it; make it again with this one"
                        : "give the file that train or compare wrote with --json"));
  }
  const bool is_trace = json.is_object() && json.contains("traceEvents");
  file.fail_at(
      "",
      fmt::format("this is {}, expected a run file of schema '{}'{}",
                  is_trace ? "a timeline" : "another program's JSON: it names no schema", kSchema,
                  is_trace ? "; `lockstep report` takes a timeline by --trace-file"
                           : ", as train and compare write it with --json"));
}

// A flag has one value, or a list of them.
void check_config(const JsonFields& config) {
  const auto is_one = [](const nlohmann::json& value) { return value.is_primitive(); };
  for (const std::string& flag : config.names()) {
    const nlohmann::json* const value = config.find(flag);
    if (value == nullptr || is_one(*value)) continue;
    if (!value->is_array() || !std::ranges::all_of(*value, is_one)) {
      config.fail_at(
          flag, fmt::format("expected one value of the flag '{}', or a list of them", shown(flag)));
    }
  }
}

FileHost read_host(const JsonFields& fields) {
  fields.optional_number("memory_bytes");
  for (const char* const name : {"os", "version", "build"}) fields.text_or_empty(name);
  FileHost host;
  host.cpu = fields.text_or_empty("cpu");
  host.cores = fields.count_or("cores", 1);
  if (fields.has("gpus")) {
    for (const JsonFields& gpu : fields.objects("gpus")) host.gpus.push_back(gpu.text("name"));
  }
  return host;
}

std::vector<RunRow> read_rows(const JsonFields& fields) {
  std::vector<RunRow> rows;
  for (const JsonFields& row : fields.objects("rows")) rows.push_back(read_row(row));
  if (rows.empty()) fields.refuse("rows", "a list with at least one row");
  if (rows.size() > kMostRows) fields.fail_at("rows", "more than 1,000 rows are too many");
  return rows;
}

std::optional<predict::LayerShape> read_product(const JsonFields& fields, const char* name) {
  if (!fields.has(name)) return std::nullopt;
  const JsonFields product = fields.object(name);
  for (const char* const size : {"inputs", "outputs"}) {
    if (product.number(size) > kMostBytes) product.refuse(size, "at most 1e9");
  }
  return predict::LayerShape{product.positive("rows"), product.positive("inputs"),
                             product.positive("outputs"), sizeof(float),
                             product.number("image_bytes")};
}

FileLayer read_layer(const JsonFields& fields) {
  FileLayer layer{fields.text("name"), fields.number("forward_seconds"),
                  fields.number("backward_seconds"), fields.count("parameter_bytes")};
  if (layer.parameter_bytes < sizeof(float)) fields.refuse("parameter_bytes", "4 bytes or more");
  layer.product = read_product(fields, "product");
  layer.attention = read_product(fields, "attention");
  layer.forward_bytes = fields.numbers("forward_bytes");
  layer.backward_bytes = fields.numbers("backward_bytes");
  for (const double bytes : fields.numbers("buffer_bytes")) {
    if (bytes > kMostBytes) fields.refuse("buffer_bytes", "at most 1 GB each");
    layer.buffer_bytes.push_back(static_cast<std::size_t>(bytes));
  }
  layer.output_bytes = fields.number("output_bytes");
  return layer;
}

FileWorkload read_workload(const JsonFields& fields) {
  FileWorkload workload;
  workload.batch = fields.count("batch");
  workload.input_bytes_per_row = fields.number("input_bytes_per_row");
  workload.host_seconds_per_op = fields.number("host_seconds_per_op");
  workload.optimizer_seconds = fields.number("optimizer_seconds");
  for (const JsonFields& layer : fields.objects("layers")) {
    workload.layers.push_back(read_layer(layer));
  }
  if (workload.layers.empty()) fields.refuse("layers", "a list with at least one layer");
  workload.ready_order = fields.texts("ready_order");
  workload.rows_per_epoch = fields.count("rows_per_epoch");
  return workload;
}

namespace fs = std::filesystem;

// True for a run file of any version; the reader then explains what to do about another version.
bool is_run_file(const fs::path& path, std::string_view operation) {
  const JsonFile file(path, operation);
  const nlohmann::json& json = file.json();
  if (!json.is_object() || !json.contains("schema") || !json["schema"].is_string()) return false;
  return json["schema"].get<std::string>().starts_with("lockstep.run/");
}

std::vector<fs::path> json_files_in(const fs::path& folder, std::string_view operation) {
  std::vector<fs::path> files;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end;
       at.increment(problem)) {
    std::error_code ignored;  // a dangling link is not a file
    const bool is_file = at->is_regular_file(ignored);
    if (is_file && at->path().extension() == ".json") files.push_back(at->path());
  }
  require(!problem, ErrorCode::Io, operation, "cannot read the folder '{}': {}", folder.string(),
          problem.message());
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::string RunFile::config_value(std::string_view flag) const {
  const nlohmann::json config = json->value("config", nlohmann::json::object());
  const auto value = config.find(flag);
  if (value == config.end() || value->is_null()) return {};
  return value->is_string() ? value->get<std::string>() : value->dump();
}

namespace {

std::string read_interruption(const JsonFields& fields) {
  const std::string signal = fields.text("signal");
  if (signal != "SIGINT" && signal != "SIGTERM") fields.refuse("signal", "SIGINT or SIGTERM");
  const std::string unit = fields.text("unit");
  if (unit != "steps" && unit != "rows") fields.refuse("unit", "steps or rows");
  return fmt::format("interrupted by {} after {} of {} {}", signal, fields.count("done"),
                     fields.count("planned"), unit);
}

RunFile read(const JsonFile& json) {
  require_run_file(json);
  const JsonFields fields = json.fields();
  RunFile file;
  file.command = fields.texts("command");
  fields.text_or_empty("date");
  if (fields.has("config")) check_config(fields.object("config"));
  file.json = std::make_shared<nlohmann::json>(json.json());
  if (fields.has("host")) file.host = read_host(fields.object("host"));
  file.rows = read_rows(fields);
  for (RunRow& row : file.rows) {
    row.is_on_cores = row.kind == "measured" && file.config_value("device") != "cuda";
  }
  if (fields.has("interrupted")) file.interrupted = read_interruption(fields.object("interrupted"));
  if (fields.has("workload")) file.workload = read_workload(fields.object("workload"));
  return file;
}

}  // namespace

RunFile read_run_file(const std::filesystem::path& path, std::string_view operation) {
  RunFile file = read(JsonFile(path, operation));
  file.path = path;
  return file;
}

RunFile parse_run_file(std::string_view name, const std::string& text, std::string_view operation) {
  return read(JsonFile(name, text, operation));
}

FoundRuns find_runs(const std::vector<std::string>& paths, std::string_view operation) {
  FoundRuns found;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
      found.paths.push_back(path);
      continue;
    }
    const std::size_t before = found.paths.size();
    for (const fs::path& file : json_files_in(path, operation)) {
      auto& list = is_run_file(file, operation) ? found.paths : found.left_out;
      list.push_back(file.string());
    }
    require(found.paths.size() > before, ErrorCode::Io, operation,
            "no run file in the folder '{}'; train and compare write one with --json {}", path,
            (fs::path(path) / "NAME.json").string());
  }
  return found;
}

}  // namespace lockstep::tools
