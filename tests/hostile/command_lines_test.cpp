// Whatever the command line: exit code 0, 1 or 2, one line that says why, no crash, no hang.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <regex>

#include "engine/core/rng.h"
#include "tests/fuzz/damage.h"
#include "tests/hostile/rounds.h"
#include "tests/support/temp_folder.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

// As run_lockstep(), which this program lets start `timeout`: a command that still works after 60
// seconds is killed with all that it started, and has the exit code 128 + SIGKILL.
Outcome run_briefly(const Arguments& arguments, const std::filesystem::path& folder = {}) {
  Arguments words = {"-s", "KILL", "60", LOCKSTEP_UNDER_ATTACK};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_lockstep(words, folder);
}

using Words = std::vector<std::string>;

// A command, and the words that keep its work short.
struct CommandKind {
  const char* name;
  const char* brief_flags;
};

constexpr CommandKind kCommands[] = {
    {"train", "--steps 2"},
    {"train", "--steps 3 --devices 2 --parallel ddp"},
    {"compare", "--steps 2 --devices 1,2"},
    {"bench step", "--seconds 0.001 --batch 8"},
    {"bench all-reduce", "-b 1K -e 4K -n 2 -w 1"},
    {"sample", "--init saved --prompt 1 --tokens 2"},
    {"explain", "json"},
    {"report", "json"},
    {"devices", ""},
    {"env", ""},
    {"predict", "--workload missing"},
    {"predict", "--params 1M --step 1 --batch-per-gpu 1 --topology missing.json"},
    {"run", "--nproc-per-node 2 -- true"},
    {"", ""},
};

// Words that some flag understands. A flag that decides how long a command works has its own.
const Words kKnown = words(
    "1 2 64 1,2 0.1 1e308 digits mlp:64-8-10 mlp:8-4-3 cpu cuda auto dp ddp none own nccl ring "
    "tree "
    "threads processes torch shm tcp float64 adamw cosine saved ./saved damaged missing json - log "
    "page trace . /dev/full /dev/null missing/file cpu:0*4 cuda:0*2 dgx1-v100 "
    "hgx-h100-8*4@8x400gbe "
    "batch=64 bandwidth=2x");

const std::map<std::string, Words> kBriefValues = {
    {"--comm-timeout", {"5", "0.001"}},
    {"--epochs", {"1"}},
    {"--iters", {"1", "3"}},
    {"--max-restarts", {"0", "1"}},
    {"--maxbytes", {"1K", "64K"}},
    {"--minbytes", {"8", "1K"}},
    {"--monitor-interval", {"0.01"}},
    {"--nnodes", {"1"}},
    {"--nproc-per-node", {"1", "3"}},
    {"--rdzv-endpoint", {"127.0.0.1:0"}},
    {"--seconds", {"0.001"}},
    {"--shutdown-timeout", {"1"}},
    {"--stepbytes", {"1024"}},
    {"--stepfactor", {"2", "4"}},
    {"--steps", {"1", "2"}},
    {"--timeout", {"0", "0.1"}},
    {"--warmup_iters", {"0", "1"}},
    {"--master-addr", {"127.0.0.1"}},
};

// No command understands these, where it wants a number at all.
const Words kNonsense = [] {
  Words nonsense = words(
      "-1 nan -inf 1.5.5 1,,2 99999999999999999999999 : -- = %s%n%x \xff\xfe é - mlp:- "
      "cuda:0*99999999 2147483648 1e-308");
  nonsense.insert(nonsense.end(), {"", "l\ni\nn\ne\ns", std::string(5'000, 'a')});
  return nonsense;
}();

template <typename Range>
const auto& one_of(const Range& range, Rng& rng) {
  return range[static_cast<std::size_t>(rng.below(std::size(range)))];
}

// The long flags that a command's help names.
const Words& flags_of(const std::string& command) {
  static std::map<std::string, Words> known;
  const auto [place, is_new] = known.try_emplace(command);
  if (!is_new) return place->second;
  Words words_of_help = words(command);
  words_of_help.push_back("--help");
  const std::string help = run_briefly(words_of_help).out;
  const std::regex flag("--[a-z][a-z_-]+");
  for (std::sregex_iterator i(help.begin(), help.end(), flag), end; i != end; ++i) {
    place->second.push_back(i->str());
  }
  return place->second;
}

std::string value_of(const std::string& flag, Rng& rng) {
  std::string name = flag;
  std::ranges::replace(name, '_', '-');
  const auto brief =
      kBriefValues.contains(flag) ? kBriefValues.find(flag) : kBriefValues.find(name);
  if (rng.below(8) < 5) return one_of(brief != kBriefValues.end() ? brief->second : kKnown, rng);
  return one_of(kNonsense, rng);
}

void add_flag(Words& line, std::size_t place, const std::string& flag, Rng& rng) {
  Words added = {flag};
  const std::uint64_t dice = rng.below(8);
  if (dice == 0) {
    added = {flag + "=" + value_of(flag, rng)};
  } else if (dice < 6) {
    added.push_back(value_of(flag, rng));
  }
  line.insert(line.begin() + static_cast<std::ptrdiff_t>(place), added.begin(), added.end());
}

std::vector<std::string> random_command_line(std::uint64_t seed) {
  Rng rng(seed, 0xc0de);
  const CommandKind& kind = one_of(kCommands, rng);
  const Words command = words(kind.name);
  Words line = command;
  const Words brief_flags = words(kind.brief_flags);
  line.insert(line.end(), brief_flags.begin(), brief_flags.end());
  const Words& flags = flags_of(kind.name);
  for (std::uint64_t i = rng.below(4); i > 0 && !flags.empty(); --i) {
    add_flag(line, command.size(), one_of(flags, rng), rng);
  }
  return line;
}

std::string shell_line(const std::vector<std::string>& line) {
  std::string text = "lockstep";
  for (const std::string& word : line) text += " '" + word.substr(0, 100) + "'";
  return text;
}

TEST(CommandLines, AreCarriedOutOrRefusedInOneLine) {
  const TempFolder folder;
  ASSERT_EQ(run_briefly(words("train --steps 1 --save saved"), folder.path()).exit_code, 0);
  const std::string weights = read_text(folder / "saved");
  std::array<std::size_t, 3> num_ended{};  // indexed by exit code
  for (Rounds round(200); round.go_on() && !HasFailure(); round.next()) {
    write_text(folder / "damaged", damaged(weights, round.seed()));
    const std::vector<std::string> line = random_command_line(round.seed());
    const Outcome outcome = run_briefly(line, folder.path());
    SCOPED_TRACE(fmt::format("seed {}: {}", round.seed(), shell_line(line)));
    ASSERT_THAT(outcome.exit_code, ::testing::AllOf(::testing::Ge(0), ::testing::Le(2)))
        << outcome.err;
    ++num_ended[static_cast<std::size_t>(outcome.exit_code)];
    if (outcome.exit_code == 0) continue;
    EXPECT_THAT(outcome.err, ::testing::ContainsRegex("(^|\n)lockstep: [^\n]*\n$"));
    if (outcome.exit_code == 2) {
      EXPECT_EQ(std::ranges::count(outcome.err, '\n'), 1) << outcome.err;
    }
  }
  EXPECT_GT(num_ended[0], 0u);
  EXPECT_GT(num_ended[2], 0u);
}

}  // namespace
}  // namespace lockstep::testing
