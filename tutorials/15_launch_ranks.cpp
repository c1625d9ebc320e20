// 15: What does a launcher do for you that four terminals do not?
//
// Started by hand, a rank that fails leaves the others waiting, in other terminals, with other
// messages. A launcher starts all ranks, gives them their variables, and watches them: when one
// fails, it says which was first and why, and ends the rest.
//
// You will see: the four things that `lockstep run` does (and PyTorch's torchrun), each shown live
// by running this program as four ranks: it sets the variables of every rank, puts the rank before
// each line, names the first failure and its cause, and leaves no process behind.
//
// Run:  15_launch_ranks [--ranks 4] [--failing-rank 2] [--device auto|cpu|cuda] [--fast]
// It calls the launcher as a function. From a shell that is
//   lockstep run --standalone --nproc-per-node 4 -- 15_launch_ranks
//   torchrun --no-python --standalone --nproc-per-node 4 15_launch_ranks
// and then this program is a rank from its first line on, and only says who it is.
//
// Expected output with --fast: tutorials/expected/15.txt

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "engine/core/error.h"
#include "engine/launch/process.h"
#include "tutorials/common.h"
#include "tutorials/ranks.h"

namespace {

using namespace lockstep;

int num_ranks = 4;         // --ranks
int failing_rank = 2;      // --failing-rank
std::string role = "say";  // --role

// --- what this program does as a rank ---

void say_who_i_am(tutorial::RankProcess& me) {
  const auto variable = [](const char* name) {
    return std::getenv(name) ? std::getenv(name) : "?";
  };
  fmt::print("RANK={} LOCAL_RANK={} WORLD_SIZE={}, {}\n", variable("RANK"), variable("LOCAL_RANK"),
             variable("WORLD_SIZE"), me.start());
}

// All have met when one rank ends with an error. The others wait for it in a collective. One of
// them notices first and tells the rest, so all of them hear the same words.
void fail_on_one_rank(tutorial::RankProcess& me) {
  const std::string heard = tutorial::expect_error([&] {
    me.group().barrier();
    if (me.rank() == failing_rank) {
      fmt::print(stderr, "the loss is not finite\n");
      ::_exit(7);
    }
    me.group().barrier();
  });
  tutorial::say(fmt::format("rank {} waits in a barrier and gets: {}", me.rank(), heard), 2);
  std::fflush(stdout);
  ::_exit(1);
}

// A helper process, as data loaders start them, which leaves its session so that no signal to the
// group reaches it. Then its rank dies without a word.
void die_with_a_helper(tutorial::RankProcess& me) {
  me.group().barrier();  // all have met
  if (me.rank() == 1) {
    if (::fork() == 0) {
      ::setsid();
      for (;;) ::pause();
    }
    ::raise(SIGKILL);
  }
  const std::string heard = tutorial::expect_error([&] { me.group().barrier(); });
  if (me.rank() == 0) tutorial::say(fmt::format("rank 0 gets, as all others: {}", heard), 2);
  std::fflush(stdout);
  ::_exit(1);
}

void be_a_rank() {
  tutorial::RankProcess me;
  if (role == "fail") return fail_on_one_rank(me);
  if (role == "die") return die_with_a_helper(me);
  say_who_i_am(me);
}

// --- what it does when it was started alone ---

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The variables, and the prefix.
void show_variables_and_prefix() {
  const TemporaryFolder logs;
  launch::LaunchOptions options;
  options.num_ranks = num_ranks;
  options.command = tutorial::own_command();
  options.log_folder = logs.path();
  options.tee.assign(num_ranks, launch::Streams::out);  // --tee 1: to the console and to a log
  const int code = tutorial::run_as_ranks(options);
  tutorial::check("each rank found its variables and met the others: exit code 0", code == 0);
  const std::string log = read_text(
      launch::log_path(options, /*restart_count=*/0, options.num_ranks - 1, STDOUT_FILENO));
  tutorial::check("the last rank's log holds its line, without the prefix",
                  log.starts_with(fmt::format("RANK={0} LOCAL_RANK={0} WORLD_SIZE={1}",
                                              num_ranks - 1, num_ranks)));
}

int run_in_role(const std::string& name) {
  return tutorial::run_as_ranks(num_ranks, tutorial::own_command({"--role", name}));
}

int show_first_failure() {
  tutorial::say(fmt::format(
      "rank {} fails while the others wait for it. All print an error; which was the cause?",
      failing_rank));
  const int code = run_in_role("fail");
  tutorial::check("the launcher returns the exit code of the first failure, 7", code == 7);
  return code;
}

int show_that_none_is_left() {
  fmt::print("rank 1 starts a helper that leaves its process group; then rank 1 is killed\n");
  const launch::ProcessTree tree;  // orphans become our children
  const int code = run_in_role("die");
  tutorial::check("a rank that is killed counts as 128 + 9", code == 128 + SIGKILL);
  tutorial::check("its helper is gone, too, although it had left the process group",
                  tree.find().empty());
  return code;
}

void run(const tutorial::Options& options) {
  num_ranks = options.num_devices;
  if (tutorial::is_rank()) return be_a_rank();
  require(failing_rank < num_ranks, ErrorCode::Usage, "--failing-rank", "{} ranks are 0 to {}",
          num_ranks, num_ranks - 1);
  tutorial::step(1, "variables for every rank, and a prefix for every line");
  show_variables_and_prefix();
  tutorial::step(2, "the first failure");
  const int failed = show_first_failure();
  tutorial::step(3, "no process is left behind");
  const int killed = show_that_none_is_left();
  tutorial::answer(
      fmt::format(
          "It sets the variables of {} ranks, prefixes their lines, names the first failure (rank "
          "{}, "
          "exit code {}, not one of the {} that waited for it), and leaves no process behind, not "
          "even the helper of a killed rank (exit code {}). Four terminals do none of this.",
          num_ranks, failing_rank, failed, num_ranks - 1, killed),
      {{"--failing-rank 0",
        "another rank notices it; the launcher still names the rank that failed first"},
       {"--ranks 6", "more ranks, and the launcher does the same"}});
}

}  // namespace

int main(int argc, char** argv) {
  return lockstep::tutorial::run_ranks_main(
      argc, argv, "What does a launcher do for you that four terminals do not?", run, num_ranks,
      [](lockstep::tutorial::Flags& flags) {
        flags.add_number("--failing-rank", failing_rank, 0, 15, "which rank fails in step 2");
        flags.add_choice("--role", role, {"say", "fail", "die"},
                         "what a rank does: set by the steps");
      });
}
