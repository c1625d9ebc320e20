// lockstep plan: prints a plan before anything runs. The engine runs this value, the predictor
// charges it, and the pictures in docs/book/pictures draw it.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/core/error.h"
#include "engine/nn/models.h"
#include "engine/plan/all_reduce_plan.h"
#include "engine/plan/buckets.h"
#include "engine/plan/scatter.h"
#include "tools/commands/commands.h"
#include "tools/flags/command_line.h"
#include "tools/flags/numbers.h"
#include "tools/run/task.h"

namespace lockstep::tools {
namespace {

constexpr int kMostPlannedRows = 1 << 20;
constexpr int kMostPlannedDevices = 1024;
constexpr int kMostPlannedElements = 1 << 30;

struct PlanFlags {
  int rows = 64;
  int devices = 4;
  std::string model = "mlp:64-1024-1024-10";
  std::string dataset;  // whose rows' sizes; see rows_for()
  double first_bucket_mib = 1;
  double bucket_mib = 25;
  std::string algorithm = "ring";
  int ranks = 4;
  int hosts = 1;
  int elements = 1024;
};

void print_scatter(const PlanFlags& flags) {
  const auto rows = static_cast<std::size_t>(flags.rows);
  const auto devices = static_cast<std::size_t>(flags.devices);
  fmt::print("{}", to_string(plan::scatter_plan(rows, devices)));
}

void print_buckets(const PlanFlags& flags) {
  const auto model = nn::make_model(flags.model, rows_for(flags.model, flags.dataset), /*seed=*/0);
  std::vector<plan::BucketParameter> parameters;
  std::size_t number = 0;
  for (const auto& [name, parameter] : model->named_parameters()) {
    const Shape& shape = parameter.value().shape();
    fmt::print("parameter {}: {} {}\n", number++, name, to_string(shape));
    parameters.push_back({shape.num_elements(), DType::float32, Device{}});
  }
  plan::BucketOptions options;
  options.byte_limits = {mib_to_bytes("--first-bucket-mib", flags.first_bucket_mib),
                         mib_to_bytes("--bucket-mib", flags.bucket_mib)};
  const std::vector<std::size_t> order = plan::reverse_order(parameters.size());
  fmt::print("{}", to_string(plan::bucket_plan(parameters, order, options)));
}

void print_all_reduce(const PlanFlags& flags) {
  require(flags.ranks % flags.hosts == 0, ErrorCode::Usage, "--hosts",
          "must divide the ranks, found {} hosts for {} ranks", flags.hosts, flags.ranks);
  std::vector<int> host_of_rank(static_cast<std::size_t>(flags.ranks));
  for (int rank = 0; rank < flags.ranks; ++rank) {
    host_of_rank[static_cast<std::size_t>(rank)] = rank / (flags.ranks / flags.hosts);
  }
  const auto elements = static_cast<std::size_t>(flags.elements);
  const auto algorithm = plan::parse_all_reduce_plan(flags.algorithm);
  fmt::print("{}", to_string(plan::all_reduce_plan(algorithm, host_of_rank, elements),
                             size_of(DType::float32)));
}

}  // namespace

void add_plan_command(CLI::App& program) {
  const auto flags = std::make_shared<PlanFlags>();
  CLI::App& plan =
      *program.add_subcommand("plan", "Print what scatter, buckets or an all-reduce will do");
  plan.require_subcommand(1);

  CLI::App& scatter =
      *plan.add_subcommand("scatter", "Print the rows of a batch that each device gets");
  scatter.add_option("--rows", flags->rows, "rows of the batch")
      ->check(CLI::Range(0, kMostPlannedRows));
  scatter.add_option("--devices", flags->devices, "how many devices share it")
      ->check(CLI::Range(1, kMostPlannedDevices));
  scatter.callback([flags] { print_scatter(*flags); });

  CLI::App& buckets =
      *plan.add_subcommand("buckets", "Print which gradients DDP all-reduces together");
  add_option(buckets, "--model", flags->model, "MODEL",
             "the net, as in mlp:64-1024-10, lenet or resnet18");
  add_option(buckets, "--dataset", flags->dataset, "DATA",
             "the rows that the model takes, as for bench step");
  buckets.add_option("--first-bucket-mib", flags->first_bucket_mib,
                     "size of the first bucket in MiB");
  buckets.add_option("--bucket-mib", flags->bucket_mib, "size of each later bucket in MiB");
  buckets.callback([flags] { print_buckets(*flags); });

  CLI::App& reduce =
      *plan.add_subcommand("all-reduce", "Print who sends which elements to whom, step by step");
  add_option(reduce, "--plan", flags->algorithm, "PLAN",
             "how it sends: ring, tree, halving-doubling, one-shot, two-shot, "
             "reduce-broadcast or hierarchical");
  reduce.add_option("--ranks", flags->ranks, "how many ranks there are, with a buffer each")
      ->check(CLI::Range(1, kMostPlannedDevices));
  reduce.add_option("--hosts", flags->hosts, "how many hosts they are on")
      ->check(CLI::Range(1, kMostPlannedDevices));
  reduce.add_option("--elements", flags->elements, "float32 elements in a buffer")
      ->check(CLI::Range(0, kMostPlannedElements));
  reduce.callback([flags] { print_all_reduce(*flags); });
}

}  // namespace lockstep::tools
