#include "tools/process_rows.h"

#include <fmt/format.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>

#include "engine/core/error.h"
#include "engine/launch/console.h"
#include "engine/launch/worker_process.h"
#include "engine/nn/weights_file.h"
#include "tools/report/row_file.h"

namespace lockstep::tools {
namespace {

// Words that `train` gets from here, or has no use for.
constexpr std::array<std::string_view, 10> kOwnFlags = {
    "--modes", "--devices",          "--json",          "--trace", "--ranks", "--help",
    "--batch", "--per-device-batch", "--explain-drift", "--wide"};

// A folder that is gone with this object.
class TemporaryFolder {
 public:
  TemporaryFolder()
      : path_((std::filesystem::temp_directory_path() / "lockstep_row_XXXXXX").string()) {
    require(::mkdtemp(path_.data()) != nullptr, ErrorCode::Io, "compare",
            "cannot make a folder for the rows in {}", path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A program that has been started, its output, and its end.
class StartedTraining {
 public:
  explicit StartedTraining(const std::vector<std::string>& command)
      : process_(launch::start_process(command[0], command, launch::current_environment())) {}
  ~StartedTraining() {
    for (const int descriptor : {process_.out, process_.err}) ::close(descriptor);
  }
  StartedTraining(const StartedTraining&) = delete;
  StartedTraining& operator=(const StartedTraining&) = delete;

  // Reads both streams until they end. What goes to stdout is the row's own and is dropped.
  int wait() {
    launch::LineSplitter lines;
    const auto keep = [this](std::string_view line) {
      if (!line.empty()) last_words_ = line;
    };
    std::array<pollfd, 2> streams{{{process_.out, POLLIN, 0}, {process_.err, POLLIN, 0}}};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
      if (::poll(streams.data(), streams.size(), -1) < 0 && errno != EINTR) break;
      for (pollfd& stream : streams) {
        if (stream.fd < 0 || stream.revents == 0) continue;
        std::array<char, 4096> bytes;
        const ssize_t count = ::read(stream.fd, bytes.data(), bytes.size());
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count > 0 && stream.fd == process_.err) {
          lines.add({bytes.data(), static_cast<std::size_t>(count)}, keep);
        }
        if (count <= 0) stream.fd = -1;
      }
    }
    lines.finish(keep);
    int status = 0;
    while (::waitpid(process_.id, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // The last line on stderr, without the name of the program.
  std::string last_words() const {
    const std::string_view name = "lockstep: ";
    return last_words_.starts_with(name) ? last_words_.substr(name.size()) : last_words_;
  }

 private:
  launch::StartedProcess process_;
  std::string last_words_;
};

}  // namespace

std::vector<std::string> flags_for_train(const std::vector<SaidFlag>& said) {
  std::vector<std::string> words;
  for (const SaidFlag& flag : said) {
    if (std::ranges::count(kOwnFlags, flag.name) > 0) continue;
    words.push_back(flag.value ? flag.name + "=" + *flag.value : flag.name);
  }
  return words;
}

RunRow run_process_row(const std::vector<std::string>& flags, const DevicePlacement& placement,
                       std::size_t batch, const std::string& trace_path) {
  const TemporaryFolder folder;
  const std::size_t num_ranks = placement.devices.size();
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string(),
                                   "train",
                                   "--ranks=processes",
                                   "--parallel=ddp",
                                   fmt::format("--devices={}", num_ranks),
                                   fmt::format("--batch={}", batch),
                                   "--row-file=" + folder.file("row.json"),
                                   "--save=" + folder.file("weights.safetensors")};
  if (!trace_path.empty()) command.push_back("--trace=" + trace_path);
  command.insert(command.end(), flags.begin(), flags.end());
  StartedTraining training(command);
  const int code = training.wait();
  if (code != 0) {
    fail(code == 2 ? ErrorCode::Usage : ErrorCode::Comm, "compare",
         "ddp on {} processes ended with exit code {}: {}", num_ranks, code, training.last_words());
  }
  RunRow row = read_row(folder.file("row.json"));
  row.result.weights = nn::load_weights(folder.file("weights.safetensors"));
  return row;
}

}  // namespace lockstep::tools
