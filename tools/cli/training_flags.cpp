#include "tools/cli/training_flags.h"

#include <fmt/format.h>

#include <charconv>

namespace lockstep::tools {
namespace {

// CLI11 alone would take -1 and numbers of more than 64 bits for other seeds.
std::string whole_number(const std::string& text) {
  std::uint64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec == std::errc{} && result.ptr == end) return {};
  return fmt::format("expected a whole number from 0 to 2^64 - 1, found '{}'", text);
}

void add_device_flags(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--device", flags.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--virtual-devices", flags.virtual_devices,
                 "several logical devices on a physical one, such as cuda:0*4");
  app.add_option("--threads-per-device", flags.threads_per_device,
                 "CPU threads of each logical CPU device (default: cores / devices, at least 1)");
  app.add_flag("--graph", flags.graph, "launch a whole step as one CUDA graph");
  add_matmul_precision_flag(app, flags.matmul_precision);
}

void add_communication_flags(CLI::App& app, TrainingFlags& flags) {
  add_rank_flags(app, flags);
  app.add_option("--bucket-mib", flags.bucket_mib, "size of a gradient bucket in MiB")
      ->capture_default_str();
  app.add_option("--first-bucket-mib", flags.first_bucket_mib, "size of the first bucket in MiB")
      ->capture_default_str();
}

void add_work_flags(CLI::App& app, TrainingFlags& flags) {
  auto* batch =
      app.add_option("--batch", flags.batch, "rows per step over all devices (default 64)");
  app.add_option("--per-device-batch", flags.per_device_batch, "rows per step and device")
      ->excludes(batch);
  auto* epochs = app.add_option("--epochs", flags.epochs, "passes over the data (default 1)");
  app.add_option("--steps", flags.steps, "training steps")->excludes(epochs);
  app.add_option("--dataset", flags.dataset,
                 "digits, mnist, fashion-mnist or synthetic:ROWSxFEATURESxCLASSES")
      ->capture_default_str();
  app.add_option("--data-dir", flags.data_dir, "where data sets were fetched to")
      ->capture_default_str();
  app.add_option("--model", flags.model, "mlp:784-256-10[:relu|gelu|tanh]")->capture_default_str();
  app.add_option("--dtype", flags.dtype, "float32 or float64")
      ->check(CLI::IsMember({"float32", "float64"}))
      ->capture_default_str();
  app.add_option("--seed", flags.seed, "of weights, row order and dropout")
      ->check(whole_number)
      ->capture_default_str();
  app.add_flag("--no-shuffle", flags.no_shuffle, "keep the rows in the file's order");
  app.add_flag("--bitwise", flags.bitwise,
               "the same bits on 1, 2, 4 and 8 devices, at the price of speed");
  app.add_option("--sampler", flags.sampler,
                 "exact (equals one device) or torch (DistributedSampler)")
      ->check(CLI::IsMember({"exact", "torch"}))
      ->capture_default_str();
}

void add_optimizer_flags(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--optimizer", flags.optimizer, "sgd or adamw")
      ->check(CLI::IsMember({"sgd", "adamw"}))
      ->capture_default_str();
  app.add_option("--lr", flags.learning_rate, "learning rate (default: sgd 0.1, adamw 0.001)");
  app.add_option("--momentum", flags.momentum, "of sgd (default 0.9)");
  app.add_flag("--nesterov", flags.nesterov, "Nesterov momentum");
  app.add_option("--weight-decay", flags.weight_decay, "default: sgd 0, adamw 0.01");
  app.add_option("--schedule", flags.schedule, "constant, step:SIZE[:GAMMA] or cosine")
      ->capture_default_str();
  app.add_option("--warmup", flags.warmup_steps, "steps of linear warm-up")->capture_default_str();
  app.add_option("--clip-norm", flags.clip_norm, "largest norm of all gradients");
}

void add_file_flags(CLI::App& app, TrainingFlags& flags) {
  app.add_option("--init", flags.init_path, "start from these weights (safetensors)");
  app.add_option("--json", flags.json_path, "write the run file here (-: standard output)");
  app.add_option("--trace", flags.trace_path, "write a timeline here");
  app.add_option("--trace-format", flags.trace_format, "perfetto or kineto")
      ->check(CLI::IsMember({"perfetto", "kineto"}))
      ->capture_default_str();
}

}  // namespace

void add_matmul_precision_flag(CLI::App& app, std::string& precision) {
  app.add_option("--matmul-precision", precision,
                 "of float32 products on GPUs: highest (float32), high (TF32) or medium (bfloat16)")
      ->check(CLI::IsMember({"highest", "high", "medium"}))
      ->capture_default_str();
}

void add_training_flags(CLI::App& app, TrainingFlags& flags) {
  add_device_flags(app, flags);
  add_communication_flags(app, flags);
  add_work_flags(app, flags);
  add_optimizer_flags(app, flags);
  add_file_flags(app, flags);
}

void add_placement_flags(CLI::App& app, TrainingFlags& flags) {
  auto* devices =
      app.add_option("--devices", flags.devices, "how many logical devices (default 1)");
  app.add_option("--device-ids", flags.device_ids, "exactly these logical devices, such as 0,3")
      ->excludes(devices);
  app.add_option("--parallel", flags.parallel, "none, dp or ddp")
      ->check(CLI::IsMember({"none", "dp", "ddp"}))
      ->capture_default_str();
  app.add_option("--save", flags.save_path, "write the weights here (safetensors)");
  app.add_option("--log", flags.log_path, "write a line per step here (JSON)");
}

}  // namespace lockstep::tools
