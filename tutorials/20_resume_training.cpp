// 20: What must a file hold so that a killed run still ends with the same weights?
//
// A training that was killed goes on from what was saved. Weights alone are not enough: the
// optimizer's momentum, the place in the data, and the state of the random numbers decide the next
// step, too. And the file must be whole, even if the kill came while it was written.
//
// You will see: the weights of a wrapped model, whose names begin with "module.", and the two ways
// to load them into a bare one. A training that goes on from weights alone, from weights and
// momentum, and from all that decides the next step. How a file is written so that a kill leaves
// the old one or the new one, and how a damaged one is found. Then kill -9 at random steps.
//
// Run:  20_resume_training [--kills 3] [--seed 0] [--device auto|cpu|cuda] [--fast]
//       20_resume_training --train-into my.safetensors    the training alone: kill it, run it again
//
// Expected output with --fast: tutorials/expected/20.txt

#include <fcntl.h>
#include <lockstep.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutorials/common.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;
namespace fs = std::filesystem;

constexpr const char* kModel = "mlp:64-128-10";
constexpr int kBatch = 64;
constexpr const char* kFile = "training.safetensors";

int num_steps = 40;
int num_kills = 3;       // --kills
int seed = 0;            // --seed, of the steps at which to kill
std::string train_into;  // --train-into: be the training that is killed

std::shared_ptr<nn::Sequential> make_model(Device device) {
  return nn::make_mlp(kModel, /*seed=*/0, DType::float32, device);
}

// --- names

void load_wrapped(const Device& device) {
  const auto model = make_model(device);
  parallel::DataParallel wrapped(model, {.devices = {device}});
  nn::save_weights("wrapped.safetensors", wrapped);
  const nn::StateDict saved = nn::load_weights("wrapped.safetensors");
  fmt::print("saved from a DataParallel: {}, {}, ...\n", saved[0].first, saved[1].first);
  const auto bare = nn::make_mlp(kModel, /*seed=*/1, DType::float32, device);
  fmt::print("loaded into a bare model:\n");
  tutorial::show_error([&] { nn::load_state_dict(*bare, saved); });

  fmt::print("1. save the inner module:  save_weights(path, *model)\n");
  nn::save_weights("inner.safetensors", *model);
  nn::load_state_dict(*bare, nn::load_weights("inner.safetensors"));
  const double first = tutorial::max_abs_difference(*bare, *model);
  fmt::print("2. take the prefix off:    strip_prefix(state, \"module.\")\n");
  const auto other = nn::make_mlp(kModel, /*seed=*/2, DType::float32, device);
  nn::load_state_dict(*other, nn::strip_prefix(saved, "module."));
  tutorial::check("both ways give the model that was saved",
                  first == 0 && tutorial::max_abs_difference(*other, *model) == 0);
}

// --- files that a kill leaves whole, and a checksum for those that a disk does not

void sync(const fs::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0 && ::fsync(file) == 0, ErrorCode::Io, "sync", "cannot sync {}", path.string());
  ::close(file);
}

// nn::save_weights() does this by itself; here each part is seen.
void save_whole(const fs::path& path, const nn::StateDict& state,
                const checkpoint::Metadata& metadata) {
  const fs::path partial = path.string() + ".partial";
  nn::save_weights(partial, state, metadata);  // killed here: the old file is still there
  sync(partial);                               // the bytes are on the disk, ...
  fs::rename(partial, path);                   // ... and at once they are the file of that name
  sync(fs::absolute(path).parent_path());      // the name is on the disk
}

// FNV-1a over all values; `lockstep train` writes SHA-256.
std::string checksum_of(const nn::StateDict& state) {
  std::uint64_t sum = 14695981039346656037u;
  for (const auto& [name, tensor] : state) {
    const std::vector<float> values = tensor.to_vector<float>();
    for (const std::byte byte : std::as_bytes(std::span(values))) {
      sum = (sum ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
    }
  }
  return fmt::format("{:016x}", sum);
}

nn::StateDict load_whole(const fs::path& path) {
  nn::StateDict state = nn::load_weights(path);
  require(checksum_of(state) == checkpoint::read_metadata(path).at("checksum"), ErrorCode::Io,
          "load", "'{}' is damaged: its checksum does not match", path.string());
  return state;
}

// Those whose names begin so, without it.
nn::StateDict entries(const nn::StateDict& state, std::string_view prefix) {
  nn::StateDict found = state;
  std::erase_if(found, [&](const auto& entry) { return !entry.first.starts_with(prefix); });
  return nn::strip_prefix(found, prefix);
}

// --- a training that can stop after any step

enum class Parts { weights, weights_and_momentum, all };

class Training {
 public:
  explicit Training(Device device)
      : model_(make_model(device)),
        names_(model_->named_parameters()),
        sgd_(model_->parameters(), {.learning_rate = 0.05, .momentum = 0.9}),
        loader_(datasets::load_digits(0, datasets::kNumTrainDigits),
                {.batch = kBatch, .shuffle = true, .device = device}) {}

  void train_until(int step, const fs::path& save_each_step = {}) {
    for (; step_ < step; ++step_) {
      if (!save_each_step.empty()) save(save_each_step);
      const data::Batch batch = next_batch();
      sgd_.zero_grad();
      cross_entropy((*model_)(batch.x), batch.labels).backward();
      sgd_.step();
    }
    if (!save_each_step.empty()) save(save_each_step);
  }

  void save(const fs::path& path) const {
    nn::StateDict state = nn::state_dict(*model_, "model.");
    for (std::size_t i = 0; i < names_.size(); ++i) {
      for (const Tensor& momentum : sgd_.state(i).tensors) {
        state.emplace_back("momentum." + names_[i].first, momentum);
      }
    }
    save_whole(path, state, {{"step", std::to_string(step_)}, {"checksum", checksum_of(state)}});
  }

  void load(const fs::path& path, Parts parts = Parts::all) {
    const nn::StateDict state = load_whole(path);
    nn::load_state_dict(*model_, entries(state, "model."));
    step_ = std::stoi(checkpoint::read_metadata(path).at("step"));
    if (parts == Parts::weights) return;
    const nn::StateDict momenta = entries(state, "momentum.");  // none before the first step
    for (std::size_t i = 0; i < momenta.size(); ++i) {
      sgd_.load_state(i, {static_cast<std::uint64_t>(step_), {momenta[i].second}});
    }
    if (parts == Parts::weights_and_momentum) return;
    for (int skipped = 0; skipped < step_; ++skipped) next_batch();
  }

  int step() const { return step_; }
  const nn::Module& model() const { return *model_; }

 private:
  data::Batch next_batch() {
    std::optional<data::Batch> batch = loader_.next();
    if (!batch) {
      loader_.start_epoch(++epoch_);  // another order of the rows
      batch = loader_.next();
    }
    return *batch;
  }

  std::shared_ptr<nn::Sequential> model_;
  std::vector<nn::NamedParameter> names_;
  optim::Sgd sgd_;
  data::DataLoader loader_;
  std::uint64_t epoch_ = 0;
  int step_ = 0;
};

void go_on_from_parts(Device device) {
  Training whole(device);
  whole.train_until(num_steps / 2);
  whole.save(kFile);
  whole.train_until(num_steps);
  const auto resume = [&](Parts parts, const char* name) {
    Training training(device);
    training.load(kFile, parts);
    training.train_until(num_steps);
    const double difference = tutorial::max_abs_difference(training.model(), whole.model());
    fmt::print("{:<38} {:>4.1g}\n", name, difference);
    return difference;
  };
  fmt::print(
      "{} of {} steps, saved; a new model makes the rest. What it read, and how far\n"
      "its weights end from those of an uninterrupted run:\n",
      num_steps / 2, num_steps);
  const double weights = resume(Parts::weights, "weights");
  const double momentum = resume(Parts::weights_and_momentum, "weights, momentum");
  const double all = resume(Parts::all, "weights, momentum, place in the data");
  tutorial::check("without one of them the weights differ", weights > 1e-4 && momentum > 1e-4);
  tutorial::check("with all three the weights are the same to the bit", all == 0);
}

// --- damage

void write_bytes(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void damage_files() {
  std::ifstream file(kFile, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  fmt::print("half of it, as if the run was killed while it wrote the file in place:\n");
  write_bytes("half.safetensors", bytes.substr(0, bytes.size() / 2));
  tutorial::show_error([] { load_whole("half.safetensors"); });
  fmt::print("one bit of one weight:\n");
  bytes[bytes.size() - 100] ^= 1;
  write_bytes("changed.safetensors", bytes);
  nn::load_weights("changed.safetensors");  // the format is right, so this says nothing
  const std::string message = tutorial::show_error([] { load_whole("changed.safetensors"); });
  tutorial::check("a bit that changed in the file is found by its checksum",
                  message.find("checksum") != std::string::npos);
}

// --- kill -9

// This program again, as a process that trains and saves after every step.
pid_t start_training(const fs::path& path) {
  const std::vector<std::string> words = tutorial::own_command({"--train-into", path.string()});
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t silence;
  posix_spawn_file_actions_init(&silence);
  posix_spawn_file_actions_addopen(&silence, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t process = 0;
  const int error =
      posix_spawn(&process, arguments[0], &silence, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&silence);
  require(error == 0, ErrorCode::Io, "start", "cannot start {}", words[0]);
  return process;
}

int saved_step(const fs::path& path) {
  return fs::exists(path) ? std::stoi(checkpoint::read_metadata(path).at("step")) : -1;
}

// Waits until the file has come to that step, or the process to its end; then kills it.
void kill_at(int step, const fs::path& path, pid_t process) {
  int status = 0;
  while (saved_step(path) < step) {
    if (::waitpid(process, &status, WNOHANG) == process) {
      require(WIFEXITED(status) && WEXITSTATUS(status) == 0, ErrorCode::State, "training",
              "the process that trains has failed");
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(process, SIGKILL);
  ::waitpid(process, &status, 0);
}

void kill_and_resume(Device device) {
  const fs::path path = fs::absolute("killed.safetensors");
  Rng random(static_cast<std::uint64_t>(seed));
  int step = 0;
  for (int i = 0; i < num_kills; ++i) {
    step = saved_step(path) + 1 + static_cast<int>(random.below(num_steps / num_kills));
    kill_at(std::min(step, num_steps), path, start_training(path));
    fmt::print("killed in step {} or later; the file has step {}, and is whole\n", step,
               saved_step(path));
  }
  Training resumed(device);
  resumed.load(path);
  resumed.train_until(num_steps);
  Training undisturbed(device);
  undisturbed.train_until(num_steps);
  tutorial::check(
      fmt::format("after {} kills the weights are those of an undisturbed run, to the bit",
                  num_kills),
      tutorial::max_abs_difference(resumed.model(), undisturbed.model()) == 0);
}

void run(const tutorial::Options& options) {
  if (options.fast) num_steps = 20;
  // On a GPU, each process would choose its own algorithms for products, and they round
  // differently.
  ::setenv("LOCKSTEP_TUNING", "off", 0);
  if (!train_into.empty()) {
    Training training(options.device());
    if (fs::exists(train_into)) training.load(train_into);
    training.train_until(num_steps, train_into);
    fmt::print("{} has the weights after {} steps\n", train_into, training.step());
    return;
  }
  const TemporaryFolder folder;  // for the files; it goes with the program
  fs::current_path(folder.path());
  tutorial::step(1, "names: the prefix \"module.\"");
  load_wrapped(options.device());
  tutorial::step(2, "what the next step depends on");
  go_on_from_parts(options.device());
  tutorial::step(3, "a damaged file");
  damage_files();
  tutorial::step(4, "kill -9, then on from the file");
  kill_and_resume(options.device());
  tutorial::answer(
      fmt::format("Whatever the next step reads: weights, the optimizer's state, and the place in "
                  "the data, here {} numbers and a step. Written beside the old file, synced and "
                  "renamed, it is whole after any of {} kills. `lockstep train --resume auto` does "
                  "the same.",
                  2 * make_model(options.device())->num_parameters(), num_kills),
      {{"--kills 8", "More kills, the same weights."}, {"--seed 1", "Kills at other steps."}});
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep::tutorial;
  const auto add_flags = [](Flags& flags, Options&) {
    flags.add_number("--kills", num_kills, 1, 20, "how often the training is killed");
    flags.add_number("--seed", seed, 0, 1000000, "of the steps at which it is killed");
    flags.add_text("--train-into", train_into, "train, and save to this file after every step");
  };
  return run_main(argc, argv,
                  "What must a file hold so that a killed run still ends with the same weights?",
                  run, {.add_flags = add_flags});
}
