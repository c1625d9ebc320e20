#include "tools/flags/training_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "engine/core/error.h"
#include "tools/flags/command_line.h"
#include "tools/flags/numbers.h"

namespace lockstep::tools {
namespace {

using F = TrainingFlags;
constexpr auto kTrain = FlagRules::Commands::train;
constexpr auto kEachItsOwn = FlagRules::Ranks::each_its_own;

TrainingFlag flag(const char* name, FlagMember member, const char* help, FlagRules rules = {}) {
  return {name, member, help, std::move(rules)};
}

const std::vector<TrainingFlag> kTrainingFlags = {
    flag("--device", &F::device, "where to compute; auto is the GPUs, or the CPU if there are none",
         {.one_of = {"auto", "cpu", "cuda"}}),
    flag(
        "--parallel", &F::parallel,
        "how several devices train: dp as PyTorch's DataParallel, ddp as its "
        "DistributedDataParallel, pipeline with a part of the model on each, tensor with a part of "
        "each matrix",
        {.one_of = {"none", "dp", "ddp", "pipeline", "tensor"}, .commands = kTrain}),
    flag("--stages", &F::stages, "stages of the pipeline, one device each", {.commands = kTrain}),
    flag("--micro-batches", &F::micro_batches,
         "micro-batches into which a pipeline cuts a batch (default: four for each stage)"),
    flag("--pipeline-schedule", &F::pipeline_schedule,
         "the order of a pipeline's forward and backward passes",
         {.one_of = {"gpipe", "1f1b", "interleaved"}}),
    flag("--chunks", &F::chunks,
         "with --pipeline-schedule interleaved: parts of the model on each stage (default: 2)"),
    flag("--shard", &F::shard,
         "what the ranks of ddp divide among them: the optimizer's state (ZeRO-1), gradients too "
         "(ZeRO-2), or parameters too (ZeRO-3, FSDP)",
         {.one_of = {"optimizer", "gradients", "parameters"}, .commands = kTrain}),
    flag("--devices", &F::devices, "how many devices (default: 1)",
         {.commands = kTrain, .ranks = kEachItsOwn}),
    flag("--device-ids", &F::device_ids, "instead of --devices: exactly these, as in 0,3",
         {.value = "IDS", .excludes = "--devices", .commands = kTrain, .ranks = kEachItsOwn}),
    flag("--virtual-devices", &F::virtual_devices,
         "put several logical devices on one GPU: cuda:0*4 puts four on the first",
         {.value = "LIST", .ranks = kEachItsOwn}),
    flag("--threads-per-device", &F::threads_per_device,
         "CPU threads of each device (default: OMP_NUM_THREADS if it is set, else cores / devices)",
         {.ranks = kEachItsOwn}),
    flag("--graph", &F::graph, "launch a whole step as one CUDA graph"),
    flag("--precision", &F::precision,
         "how exact the factors of products are; sums, weights, loss and optimizer stay float32. "
         "bf16 also stores activations in 16 bits. tf32 is for GPUs, and a CPU only imitates bf16",
         {.one_of = {"fp32", "tf32", "bf16"}}),
    // It stands before --comm, which it may choose: an error names the first flag that differs by
    // rank.
    flag("--bitwise", &F::bitwise, "compute the same bits on 1, 2, 4 and 8 devices, but slower"),
    flag("--sync-batch-norm", &F::sync_batch_norm, "let batch norm use the rows of all devices"),
    flag("--ranks", &F::ranks,
         "what a rank is (default: threads; always processes under a launcher)",
         {.one_of = {"threads", "processes"}, .ranks = kEachItsOwn}),
    flag("--comm", &F::comm,
         "who does the collectives (default: nccl if each rank is a process with a GPU of its own, "
         "else own)",
         {.one_of = {"own", "nccl"}}),
    flag("--nccl-share-gpu", &F::nccl_share_gpu,
         "let NCCL's ranks share a GPU, to check results and never for timing",
         {.ranks = kEachItsOwn}),
    flag("--plan", &F::plan, "with --comm own: how all-reduces send",
         {.one_of = {"auto", "ring", "tree", "halving-doubling", "one-shot", "two-shot",
                     "reduce-broadcast", "hierarchical"}}),
    flag("--transport", &F::transport,
         "with --comm own: what carries the messages; thread is between threads, shm and tcp are "
         "between processes",
         {.one_of = {"auto", "thread", "shm", "tcp"}}),
    flag("--link", &F::link,
         "simulate a link between ranks, as in 50us,1GB/s: messages of --comm own take as long as "
         "they would over it",
         {.value = "LATENCY,BANDWIDTH"}),
    flag("--act-as", &F::act_as,
         "train in slow motion, as another machine would, and print that machine's times: "
         "titanx-pascal-dual-root-8, or any topology of lockstep predict",
         {.value = "TOPOLOGY"}),
    flag("--slow-motion", &F::slow_motion,
         "with --act-as: how many times slower; auto is the least that the cores can keep up with",
         {.value = "auto|X", .needs = "--act-as"}),
    flag("--live", &F::live, "with --act-as: show on the terminal what each device does",
         {.needs = "--act-as", .recorded_as = ""}),
    flag("--comm-timeout", &F::comm_timeout, "seconds to wait for other ranks",
         {.ranks = kEachItsOwn}),
    flag("--batch", &F::batch, "rows of a step, over all devices (default: 64)"),
    flag("--per-device-batch", &F::per_device_batch,
         "instead of --batch: rows of a step on each device; compare takes several, as in 32,64",
         {.value = "N", .excludes = "--batch", .ranks = kEachItsOwn}),
    flag("--accumulate", &F::accumulate,
         "cut each device's rows into so many micro-batches, and add up their gradients"),
    flag("--epochs", &F::epochs, "passes over the data (default: 1)"),
    flag("--steps", &F::steps, "instead of --epochs: training steps", {.excludes = "--epochs"}),
    flag("--dataset", &F::dataset,
         "images: digits, mnist, fashion-mnist, cifar10; texts: embedded-text, tinyshakespeare, "
         "text:FILE (characters), tokens:FILE.bin (GPT-2's); or synthetic:ROWSxFEATURESxCLASSES",
         {.value = "DATA"}),
    flag("--data-dir", &F::data_dir, "the folder that data sets were fetched to",
         {.value = "FOLDER", .ranks = kEachItsOwn}),
    flag("--vocab", &F::vocab_dir,
         "cut texts into GPT-2's tokens instead of characters, with encoder.json and vocab.bpe of "
         "this folder",
         {.value = "FOLDER", .ranks = kEachItsOwn}),
    flag("--model", &F::model,
         "mlp:784-256-10[:relu|gelu|tanh]; for images also lenet, lenet5, resnet18[:WIDTH], "
         "cnn:32c3-p2-64c3-p2-128-10; for texts gpt:LAYERS-HEADS-CHANNELS-CONTEXT, gpt2, "
         "gpt2-medium (default: mlp:FEATURES-256-CLASSES of the data set; for texts "
         "gpt:4-4-128-64)",
         {.value = "MODEL"}),
    flag("--dtype", &F::dtype, "the type of weights, gradients and activations",
         {.one_of = {"float32", "float64"}}),
    flag("--optimizer", &F::optimizer, "the rule that updates the weights",
         {.one_of = {"sgd", "adamw"}}),
    flag("--lr", &F::learning_rate, "learning rate (default: 0.1 for sgd, 0.001 for adamw)"),
    flag("--momentum", &F::momentum, "momentum of sgd (default: 0.9)"),
    flag("--nesterov", &F::nesterov, "use Nesterov's momentum"),
    flag("--weight-decay", &F::weight_decay, "weight decay (default: 0 for sgd, 0.01 for adamw)"),
    flag(
        "--schedule", &F::schedule,
        "the learning rate over time: constant; times GAMMA (0.1) after every SIZE steps; or along "
        "a cosine down to LAST (0) times --lr",
        {.value = "constant|step:SIZE[:GAMMA]|cosine[:LAST]"}),
    flag("--warmup", &F::warmup_steps, "steps over which the learning rate rises to --lr"),
    flag("--clip-norm", &F::clip_norm, "scale gradients down to this norm if theirs is larger"),
    flag("--seed", &F::seed, "seed of weights, row order and dropout"),
    flag("--no-shuffle", &F::no_shuffle, "keep the rows in the file's order",
         {.recorded_as = "shuffle"}),
    flag("--augment", &F::augment,
         "change training images at random: shift them by up to 4 pixels, mirror them, or both",
         {.one_of = {"crop", "flip", "crop,flip"}}),
    flag("--sampler", &F::sampler,
         "which rows a rank gets: exact equals one device, torch is PyTorch's DistributedSampler",
         {.one_of = {"exact", "torch"}}),
    flag("--bucket-mib", &F::bucket_mib, "size of ddp's gradient buckets in MiB"),
    flag("--first-bucket-mib", &F::first_bucket_mib, "size of the first bucket in MiB"),
    flag("--init", &F::init_path,
         "start from these weights (safetensors, or the index of several files)",
         {.value = "FILE", .ranks = kEachItsOwn}),
    flag("--strip-prefix", &F::strip_prefix,
         "with --init: take a wrapper's prefix off their names, such as module. or _orig_mod.",
         {.needs = "--init", .ranks = kEachItsOwn, .recorded_as = ""}),
    flag("--save", &F::save_path, "write the weights here (safetensors)",
         {.value = "FILE", .commands = kTrain, .ranks = kEachItsOwn}),
    flag("--checkpoint-dir", &F::checkpoint_dir,
         "keep checkpoints in this folder, from which training can go on",
         {.value = "FOLDER", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
    flag(
        "--checkpoint-every", &F::checkpoint_every,
        "steps from one checkpoint to the next (default: as many as an epoch has)",
        {.needs = "--checkpoint-dir", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
    flag(
        "--keep", &F::keep, "how many checkpoints to keep",
        {.needs = "--checkpoint-dir", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
    flag("--resume", &F::resume,
         "go on from this checkpoint; auto: from the newest of --checkpoint-dir, if there is one",
         {.value = "auto|CHECKPOINT", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
    flag("--resume-with-changes", &F::resume_with_changes,
         "with --resume: allow flags that differ from the checkpoint's",
         {.needs = "--resume", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
    flag("--log", &F::log_path, "write a line of JSON for each step here",
         {.value = "FILE", .commands = kTrain, .ranks = kEachItsOwn}),
    flag("--json", &F::json_path,
         "write the run file here, for explain, report and predict (-: standard output)",
         {.value = "FILE", .ranks = kEachItsOwn}),
    flag("--trace", &F::trace_path, "write a timeline here, for ui.perfetto.dev",
         {.value = "FILE", .ranks = kEachItsOwn}),
    flag("--watch", &F::watch_path, "write a page here in which one step of the training plays",
         {.value = "FILE", .commands = kTrain, .ranks = kEachItsOwn, .recorded_as = ""}),
};

}  // namespace

std::string TrainingFlag::key() const {
  std::string key = name.substr(2);
  std::ranges::replace(key, '-', '_');
  return key;
}

std::span<const TrainingFlag> training_flags() {
  return kTrainingFlags;
}

void refuse(bool is_refused, std::string_view flag, std::string_view why) {
  require(!is_refused, ErrorCode::Usage, flag, "{}", why);
}

void resolve_pipeline_flags(TrainingFlags& flags) {
  const bool is_pipelines =
      flags.schedule == "gpipe" || flags.schedule == "1f1b" || flags.schedule == "interleaved";
  require(!is_pipelines, ErrorCode::Usage, "--schedule",
          "is the learning rate's, and {} is a pipeline's: use --pipeline-schedule {}",
          flags.schedule, flags.schedule);
  if (flags.parallel != "pipeline" || !flags.stages) return;
  const int stages = static_cast<int>(require_positive("--stages", *flags.stages));
  const std::size_t num_devices = flags.device_ids.empty()
                                      ? static_cast<std::size_t>(flags.devices.value_or(stages))
                                      : parse_list("--device-ids", flags.device_ids).size();
  require(
      num_devices == static_cast<std::size_t>(stages), ErrorCode::Usage, "--stages",
      "each stage needs a device of its own, and {} stages and {} devices were asked for; leave "
      "one of the two flags out",
      stages, num_devices);
  if (flags.device_ids.empty()) flags.devices = stages;
}

namespace {

void add(CLI::App& command, const TrainingFlag& flag, TrainingFlags& flags) {
  const auto add_member = [&](auto member) {
    auto& value = flags.*member;
    using Kind = std::remove_reference_t<decltype(value)>;
    if constexpr (std::is_same_v<Kind, bool>) {
      return command.add_flag(flag.name, value, flag.help);
    } else {
      CLI::Option* const added = command.add_option(flag.name, value, flag.help);
      if (!flag.rules.value.empty()) added->type_name(flag.rules.value);
      if constexpr (std::is_same_v<Kind, std::uint64_t>) added->check(whole_number());
      return added;
    }
  };
  CLI::Option* const added = std::visit(add_member, flag.member);
  const FlagRules& rules = flag.rules;
  if (!rules.one_of.empty()) added->check(one_of(rules.one_of));
  if (!rules.excludes.empty()) added->excludes(command.get_option(rules.excludes));
  if (!rules.needs.empty()) added->needs(command.get_option(rules.needs));
}

}  // namespace

std::vector<FlagGroup> training_groups(std::vector<std::string> most_used) {
  return {
      {"Most used", std::move(most_used)},
      {"What to train",
       {"--model", "--dataset", "--data-dir", "--vocab", "--augment", "--no-shuffle", "--epochs",
        "--steps", "--batch", "--per-device-batch", "--seed", "--dtype", "--init",
        "--strip-prefix"}},
      {"How it learns",
       {"--optimizer", "--lr", "--momentum", "--nesterov", "--weight-decay", "--schedule",
        "--warmup", "--clip-norm", "--accumulate"}},
      {"On which devices",
       {"--device", "--devices", "--device-ids", "--virtual-devices", "--threads-per-device"}},
      {"How the devices share the work",
       {"--parallel", "--modes", "--shard", "--sampler", "--sync-batch-norm", "--bitwise",
        "--stages", "--micro-batches", "--pipeline-schedule", "--chunks"}},
      {"How fast",
       {"--precision", "--graph", "--ranks", "--comm", "--nccl-share-gpu", "--plan", "--transport",
        "--bucket-mib", "--first-bucket-mib", "--comm-timeout"}},
      {"As another machine would", {"--act-as", "--slow-motion", "--live", "--link", "--predict"}},
      {"What to write",
       {"--save", "--log", "--json", "--trace", "--watch", "--numbers", "--output", "--wide",
        "--explain-drift", "--checkpoint-dir", "--checkpoint-every", "--keep", "--resume",
        "--resume-with-changes", "--interrupt"}},
  };
}

void add_training_flags(CLI::App& command, TrainingFlags& flags) {
  for (const TrainingFlag& flag : training_flags()) add(command, flag, flags);
}

void add_compare_flags(CLI::App& command, TrainingFlags& flags) {
  for (const TrainingFlag& flag : training_flags()) {
    if (flag.rules.commands != FlagRules::Commands::train) add(command, flag, flags);
  }
}

void add_training_flag(CLI::App& command, TrainingFlags& flags, std::string_view name) {
  add(command, *std::ranges::find(training_flags(), name, &TrainingFlag::name), flags);
}

std::vector<std::string> words_of(const TrainingFlags& flags) {
  const TrainingFlags defaults;
  std::vector<std::string> words;
  for (const TrainingFlag& flag : training_flags()) {
    const auto add_word = [&](auto member) {
      const auto& value = flags.*member;
      if (value == defaults.*member) return;
      if constexpr (std::is_same_v<decltype(value), const bool&>) {
        words.push_back(flag.name);
      } else if constexpr (requires { value.has_value(); }) {
        words.push_back(fmt::format("{}={}", flag.name, *value));
      } else {
        words.push_back(fmt::format("{}={}", flag.name, value));
      }
    };
    std::visit(add_word, flag.member);
  }
  return words;
}

}  // namespace lockstep::tools
