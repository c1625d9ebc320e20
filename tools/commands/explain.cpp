// lockstep explain: explains a run file, or traces of torch.profiler, in sentences.
#include "tools/show/explain.h"
#include "tools/flags/command_line.h"

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/core/error.h"
#include "engine/core/text.h"
#include "simulate/predict/all_reduce_cost.h"
#include "tools/commands/commands.h"
#include "tools/flags/output_path.h"
#include "tools/record/host_info.h"
#include "tools/record/run_file.h"
#include "tools/text/format.h"
#include "tools/torch_trace/answer.h"
#include "tools/torch_trace/trace_events.h"

namespace lockstep::tools {
namespace {

// One device's step and the judged row's, part by part.
void print_parts(const RunFile& file) {
  const std::vector<PartOfStep> parts = parts_of_judged_row(file);
  if (parts.empty()) return;
  const RunRow& row = judged_row(file);
  fmt::print("\n{:<22}{:>12}{:>12}{:>14}{:>12}\n", "part of a step", "one device", "ideal share",
             name_of(row), "more");
  PartOfStep step{"step"};
  const auto print = [](const PartOfStep& part) {
    const double more = part.row - part.share;
    fmt::print("{:<22}{:>12}{:>12}{:>14}{:>12}\n", part.name, trace::format_seconds(part.one),
               trace::format_seconds(part.share), trace::format_seconds(part.row),
               (more < 0 ? "-" : "") + trace::format_seconds(std::abs(more)));
  };
  for (const PartOfStep& part : parts) {
    step.one += part.one;
    step.share += part.share;
    step.row += part.row;
    if (part.one > 0 || part.row > 0) print(part);
  }
  print(step);
}

void run_explain(const std::string& path) {
  const RunFile file = read_run_file(path, "explain");
  const std::string model = file.config_value("model");
  const std::string dataset = file.config_value("dataset");
  if (!model.empty()) print_wrapped(stdout, fmt::format("{} on {}", shown(model), shown(dataset)));
  if (file.interrupted) {
    print_wrapped(stdout, fmt::format("{} was {}", shown(path), *file.interrupted));
  }
  print_wrapped(stdout, headline(file));
  const std::vector<Answer> answers = explain(file);
  for (const Answer& answer : answers) {
    fmt::print("\n{}\n{}\n", answer.title, wrap(answer.text));
    if (&answer == &answers.front()) print_parts(file);
  }
}

struct ExplainFlags {
  std::vector<std::string> paths;
  std::string topology, json_path;
};

// The user's links, by NCCL's model of an all-reduce.
Links links_of(const std::string& topology_name) {
  if (topology_name.empty()) return {};
  const auto topology = std::make_shared<predict::Topology>(predict::find_topology(topology_name));
  const auto network = std::make_shared<predict::Network>(*topology);
  return {topology->name, [topology, network](std::size_t num_ranks, double num_bytes) {
            require(num_ranks <= topology->gpus.size(), ErrorCode::Usage, "--topology",
                    "'{}' has {} devices, and collectives here have {} ranks", topology->name,
                    topology->gpus.size(), num_ranks);
            return predict::nccl_all_reduce_seconds(predict::nccl_group(*network, num_ranks),
                                                    num_bytes);
          }};
}

void explain_traces(const ExplainFlags& flags, const CommandLine& command) {
  require_writable({{"--json", flags.json_path}});
  const Links links = links_of(flags.topology);
  std::vector<RankBreakdown> ranks;
  for (const std::string& path : flags.paths) ranks.push_back(break_down(read_rank_trace(path)));
  const TraceRun run = join_ranks(std::move(ranks));
  fmt::print(flags.json_path == "-" ? stderr : stdout, "{}", trace_answer(run, links));
  if (flags.json_path.empty()) return;
  nlohmann::ordered_json json = file_head("lockstep.torch-trace/1", command);
  json.update(trace_answer_json(run, links));
  write_json(flags.json_path, json);
}

// The first file decides: a run file stands alone, and traces are one of each rank.
void explain_files(const ExplainFlags& flags, const CommandLine& command) {
  if (is_trace_file(flags.paths.front())) return explain_traces(flags, command);
  require(flags.paths.size() == 1, ErrorCode::Usage, "explain",
          "takes one run file, or traces of torch.profiler, one of each rank; '{}' is no trace",
          shown(flags.paths.front()));
  require(flags.json_path.empty() && flags.topology.empty(), ErrorCode::Usage, "explain",
          "--json and --topology belong to traces of torch.profiler");
  run_explain(flags.paths.front());
}

}  // namespace

void add_explain_command(CLI::App& program, const CommandLine& command) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App& explain = *program.add_subcommand(
      "explain", "Explain what limits a run, and which row is the fastest; or a PyTorch trace");
  explain
      .add_option("run", flags->paths,
                  "a run file (--json of train and compare); or traces of torch.profiler, .json or "
                  ".json.gz, one of each rank")
      ->required()
      ->type_name("FILE");
  add_option(explain, "--topology", flags->topology, "TOPOLOGY",
             "with traces: compare their collectives with this machine's links");
  add_option(explain, "--json", flags->json_path, "FILE",
             "with traces: write the breakdown here (-: standard output)");
  explain.footer("lockstep predict --workload RUN says what other devices and batches would give.");
  explain.callback([flags, command] { explain_files(*flags, command); });
}

}  // namespace lockstep::tools
