#include "tools/process_rows.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "engine/core/error.h"
#include "engine/launch/output.h"
#include "engine/launch/process.h"
#include "engine/nn/state_dict.h"
#include "tools/ranks/start_ranks.h"
#include "tools/ranks/temporary_folder.h"
#include "tools/report/row_file.h"

namespace lockstep::tools {
namespace {

// A program that has been started, its output, and its end.
class StartedTraining {
 public:
  explicit StartedTraining(const std::vector<std::string>& command)
      : process_(launch::start_process(command[0], command, launch::current_environment())) {}

  // Reads both streams until they end. What goes to stdout is the row's own and is dropped.
  int wait() {
    launch::LineSplitter lines;
    const auto keep = [this](std::string_view line) {
      if (!line.empty()) last_words_ = line;
    };
    std::array<pollfd, 2> streams{
        {{process_.out.descriptor(), POLLIN, 0}, {process_.err.descriptor(), POLLIN, 0}}};
    while (streams[0].fd >= 0 || streams[1].fd >= 0) {
      if (::poll(streams.data(), streams.size(), -1) < 0 && errno != EINTR) break;
      for (pollfd& stream : streams) {
        if (stream.fd < 0 || stream.revents == 0) continue;
        std::array<char, 4096> bytes;
        const ssize_t count = ::read(stream.fd, bytes.data(), bytes.size());
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
        if (count > 0 && stream.fd == process_.err.descriptor()) {
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

RunRow run_process_row(TrainingFlags flags, const DevicePlacement& placement, std::size_t batch) {
  const TemporaryFolder temporary("compare");
  const RowFolder folder{temporary.path()};
  const std::size_t num_ranks = placement.devices.size();
  flags.parallel = "ddp";
  flags.devices = static_cast<int>(num_ranks);
  flags.batch = static_cast<int>(batch);
  flags.per_device_batch.clear();
  flags.save_path = folder.weights();
  flags.json_path.clear();
  write_flags(folder.flags(), flags);
  StartedTraining training({this_program(), "train", "--row", folder.path});
  const int code = training.wait();
  if (code != 0) {
    fail(code == 2 ? ErrorCode::Usage : ErrorCode::Comm, "compare",
         "ddp on {} processes ended with exit code {}: {}", num_ranks, code, training.last_words());
  }
  RunRow row = read_row(folder.row());
  row.result.weights = nn::load_weights(folder.weights());
  return row;
}

}  // namespace lockstep::tools
