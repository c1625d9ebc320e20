// Files that promise more than they hold, or hold more than is needed: each is refused in one clear
// line, in little time and memory, which a process of its own shows. (Damaged files: tests/fuzz.)
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "tests/datasets/idx_files.h"
#include "tests/fuzz/readers.h"
#include "tests/support/temp_folder.h"

namespace lockstep::testing {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr unsigned kMaxSeconds = 20;

struct ProcessEnd {
  int exit_code = -1;
  int signal = 0;  // SIGALRM: it took too long
  std::size_t peak_bytes = 0;
};

// Runs it in a forked process; what it returns is the exit code, 3 for an exception, which is
// printed.
ProcessEnd run_forked(const std::function<int()>& function) {
  std::fflush(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::alarm(kMaxSeconds);
    int exit_code = 3;
    try {
      exit_code = function();
    } catch (const std::exception& error) {
      fmt::print(stderr, "{}\n", error.what());
    }
    ::_exit(exit_code);
  }
  ProcessEnd end;
  int status = 0;
  rusage use{};
  ::wait4(process, &status, 0, &use);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.peak_bytes = static_cast<std::size_t>(use.ru_maxrss) * 1024;
  return end;
}

// Sanitizers' shadows and freed memory that they keep are not the reader's.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMeasuresMemory = false;
#else
constexpr bool kMeasuresMemory = true;
#endif

// The peak of a process that reads nothing.
std::size_t bare_peak_bytes() {
  static const std::size_t bytes = run_forked([] { return 0; }).peak_bytes;
  return bytes;
}

void expect_little_memory(const ProcessEnd& end, std::size_t num_input_bytes) {
  if (!kMeasuresMemory) return;
  EXPECT_LE(end.peak_bytes, bare_peak_bytes() + 3 * num_input_bytes + 64 * kMiB);
}

// Reads a file that must be refused.
void expect_cheaply_refused(std::string_view reader, const std::filesystem::path& path) {
  const ProcessEnd end = run_forked([&] { return survives(file_reader(reader), path) ? 0 : 1; });
  EXPECT_EQ(end.exit_code, 1) << "signal " << end.signal;
  expect_little_memory(end, std::filesystem::file_size(path));
}

TEST(PromisingFile, TakesNoMoreMemoryThanArrives) {
  const TempFolder folder;
  // Gzip could make 10 GB of 10 MB; this one holds but the 10 MB.
  std::string noise;
  for (std::uint32_t i = 0; noise.size() < 10'000'000; ++i)
    noise += fmt::format("{:x}", i * 2654435761u);
  const std::string content = datasets::gzip_bytes(datasets::idx_bytes({10'000'000, 1000}, noise));
  write_text(folder / "ten_gigabytes", content);
  expect_cheaply_refused("idx", folder / "ten_gigabytes");
  write_text(folder / "short", datasets::idx_bytes({10'000'000, 1000}, std::string(980, 'x')));
  expect_cheaply_refused("idx", folder / "short");
}

}  // namespace
}  // namespace lockstep::testing
