#include "tools/cli/training_flags.h"

#include "tools/cli/command.h"

namespace lockstep::tools {
namespace {

void add_device_flags(Command& command, TrainingFlags& flags) {
  command.add_option("--device", flags.device, "auto, cpu or cuda").one_of({"auto", "cpu", "cuda"});
  command.add_option("--virtual-devices", flags.virtual_devices,
                     "several logical devices on a physical one, such as cuda:0*4");
  command.add_option(
      "--threads-per-device", flags.threads_per_device,
      "CPU threads of each logical CPU device (default: cores / devices, at least 1)");
  command.add_flag("--graph", flags.graph, "launch a whole step as one CUDA graph");
  add_matmul_precision_flag(command, flags.matmul_precision);
}

void add_communication_flags(Command& command, TrainingFlags& flags) {
  add_rank_flags(command, flags);
  command.add_option("--bucket-mib", flags.bucket_mib, "size of a gradient bucket in MiB");
  command.add_option("--first-bucket-mib", flags.first_bucket_mib,
                     "size of the first bucket in MiB");
}

void add_work_flags(Command& command, TrainingFlags& flags) {
  const Flag batch =
      command.add_option("--batch", flags.batch, "rows per step over all devices (default 64)");
  command
      .add_option("--per-device-batch", flags.per_device_batch,
                  "rows per step and device; compare takes a list")
      .excludes(batch);
  const Flag epochs =
      command.add_option("--epochs", flags.epochs, "passes over the data (default 1)");
  command.add_option("--steps", flags.steps, "training steps").excludes(epochs);
  command.add_option("--dataset", flags.dataset,
                     "digits, mnist, fashion-mnist or synthetic:ROWSxFEATURESxCLASSES");
  command.add_option("--data-dir", flags.data_dir, "where data sets were fetched to");
  command.add_option("--model", flags.model, "mlp:784-256-10[:relu|gelu|tanh]");
  command.add_option("--dtype", flags.dtype, "float32 or float64").one_of({"float32", "float64"});
  command.add_option("--seed", flags.seed, "of weights, row order and dropout");
  command.add_flag("--no-shuffle", flags.no_shuffle, "keep the rows in the file's order");
  command.add_flag("--bitwise", flags.bitwise,
                   "the same bits on 1, 2, 4 and 8 devices, at the price of speed");
  command
      .add_option("--sampler", flags.sampler,
                  "exact (equals one device) or torch (DistributedSampler)")
      .one_of({"exact", "torch"});
}

void add_optimizer_flags(Command& command, TrainingFlags& flags) {
  command.add_option("--optimizer", flags.optimizer, "sgd or adamw").one_of({"sgd", "adamw"});
  command.add_option("--lr", flags.learning_rate, "learning rate (default: sgd 0.1, adamw 0.001)");
  command.add_option("--momentum", flags.momentum, "of sgd (default 0.9)");
  command.add_flag("--nesterov", flags.nesterov, "Nesterov momentum");
  command.add_option("--weight-decay", flags.weight_decay, "default: sgd 0, adamw 0.01");
  command.add_option("--schedule", flags.schedule, "constant, step:SIZE[:GAMMA] or cosine");
  command.add_option("--warmup", flags.warmup_steps, "steps of linear warm-up");
  command.add_option("--clip-norm", flags.clip_norm, "largest norm of all gradients");
}

void add_file_flags(Command& command, TrainingFlags& flags) {
  const Flag init =
      command.add_option("--init", flags.init_path, "start from these weights (safetensors)");
  command
      .add_flag("--strip-prefix", flags.strip_prefix,
                "take off what a wrapper put before all their names, such as module. or _orig_mod.")
      .needs(init);
  command.add_option("--json", flags.json_path, "write the run file here (-: standard output)");
  command.add_option("--trace", flags.trace_path, "write a timeline here");
  command.add_option("--trace-format", flags.trace_format, "perfetto or kineto")
      .one_of({"perfetto", "kineto"});
}

}  // namespace

void add_matmul_precision_flag(Command& command, std::string& precision) {
  command
      .add_option(
          "--matmul-precision", precision,
          "of float32 products on GPUs: highest (float32), high (TF32) or medium (bfloat16)")
      .one_of({"highest", "high", "medium"});
}

void add_training_flags(Command& command, TrainingFlags& flags) {
  add_device_flags(command, flags);
  add_communication_flags(command, flags);
  add_work_flags(command, flags);
  add_optimizer_flags(command, flags);
  add_file_flags(command, flags);
}

void add_placement_flags(Command& command, TrainingFlags& flags) {
  const Flag devices =
      command.add_option("--devices", flags.devices, "how many logical devices (default 1)");
  command.add_option("--device-ids", flags.device_ids, "exactly these logical devices, such as 0,3")
      .excludes(devices);
  command.add_option("--parallel", flags.parallel, "none, dp or ddp").one_of({"none", "dp", "ddp"});
  command.add_option("--save", flags.save_path, "write the weights here (safetensors)");
  command.add_option("--log", flags.log_path, "write a line per step here (JSON)");
}

}  // namespace lockstep::tools
