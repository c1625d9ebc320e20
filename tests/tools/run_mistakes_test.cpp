// lockstep run: words that it does not take. One line that says which, and what is allowed.
#include <gtest/gtest.h>

#include "engine/comm/store/tcp_store.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

struct Mistake {
  const char* name;
  const char* flags;  // the program behind them is `true`
  const char* phrase;
};

void PrintTo(const Mistake& mistake, std::ostream* stream) {
  *stream << mistake.name;
}

constexpr Mistake kMistakes[] = {
    {"UnknownFlag", "--nproc 2", "--nproc"},
    {"NoNumber", "--nproc-per-node two", "[--nproc-per-node]"},
    {"NoRanks", "--nproc-per-node 0", "[--nproc-per-node] expected 1 to"},
    {"Negative", "--nproc-per-node -1", "[--nproc-per-node]"},
    {"TooManyRanks", "--nproc-per-node 1000000", "[--nproc-per-node]"},
    {"NoNodes", "--nnodes 0", "[--nnodes]"},
    {"ElasticNodes", "--nnodes 1:4", "[--nnodes] expected one number of machines"},
    {"NodesWithoutRank", "--nnodes 2 --master-addr x", "[--node-rank] with 2 machines"},
    {"NodeRankTooLarge", "--nnodes 2 --node-rank 2 --master-addr x",
     "[--node-rank] expected 0 to 1"},
    {"NodesWithoutAddress", "--nnodes 2 --node-rank 0", "[--master-addr] with 2 machines"},
    {"StandaloneOnTwo", "--nnodes 2 --node-rank 0 --standalone", "[--standalone]"},
    {"StandaloneWithPort", "--standalone --master-port 1", "--standalone"},
    {"PortZero", "--master-port 0", "[--master-port]"},
    {"PortTooLarge", "--master-port 65536", "[--master-port]"},
    {"Endpoint", "--rdzv-endpoint host:port", "[--rdzv-endpoint]"},
    {"EndpointFreePortOnTwo", "--nnodes 2 --node-rank 0 --rdzv-endpoint host:0",
     "[--rdzv-endpoint] port 0 is a free one"},
    {"Backend", "--rdzv-backend etcd", "--rdzv-backend"},
    {"RestartsNegative", "--max-restarts -1", "[--max-restarts]"},
    {"Redirects", "--redirects 4", "[--redirects] expected 0 (none)"},
    {"TeeOfNoRank", "--tee 1:3", "[--tee] expected local ranks below 1"},
    {"TeeHalf", "--tee 0:", "[--tee]"},
    {"FilterOfNoRank", "--local-ranks-filter 1",
     "[--local-ranks-filter] expected local ranks below 1"},
    {"RunId", "--rdzv-id a/b", "[--rdzv-id]"},
    {"EmptyValue", "--log-dir=", "[--log-dir] the value is empty"},
};

class RunMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(RunMistake, IsNamedInOneLineAndExitsWithTwo) {
  expect_rejected(run_lockstep(words(std::string("run ") + GetParam().flags + " -- true")), 2,
                  {GetParam().phrase});
}

INSTANTIATE_TEST_SUITE_P(Run, RunMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(RunMistakes, AProgramThatIsNotThereIsNamed) {
  expect_rejected(run_lockstep({"run"}), 2, {"say what to run"});
  expect_rejected(run_lockstep(words("run --standalone --")), 2, {"say what to run"});
  expect_rejected(run_lockstep(words("run --standalone -- no-such-program")), 2,
                  {"there is no program 'no-such-program' in PATH"});
  expect_rejected(run_lockstep(words("run --standalone -- /no/such")), 2, {"/no/such"});
  expect_rejected(run_lockstep(words("run --standalone -- /etc/passwd")), 2, {"not executable"});
}

TEST(RunMistakes, AScriptWithoutInterpreterIsNamed) {
  const TempFolder folder;
  write_text(folder / "script", "echo hello\n");
  std::filesystem::permissions(folder / "script", std::filesystem::perms::owner_all);
  expect_rejected(run_lockstep({"run", "--standalone", "--", (folder / "script").string()}), 1,
                  {"cannot start", "starts with #!"});
}

TEST(RunMistakes, NoFolderIsMadeForTheLogsOfAProgramThatIsNotThere) {
  const TempFolder folder;
  const Outcome outcome =
      run_lockstep(words("run --standalone --log-dir logs -- no_such_program"), folder.path());
  expect_rejected(outcome, 2, {"there is no program 'no_such_program' in PATH"});
  EXPECT_FALSE(std::filesystem::exists(folder / "logs"));
}

TEST(RunMistakes, ALogFolderThatCannotBeMadeIsNamed) {
  expect_rejected(run_lockstep(words("run --standalone --log-dir /proc/x -- true")), 1,
                  {"[--log-dir] cannot make a folder in /proc/x"});
}

TEST(RunMistakes, APortInUseIsNamedAndStandaloneProposed) {
  comm::TcpStoreServerOptions options;
  options.token = "somebody else's token";
  const comm::TcpStoreServer other(options);
  const std::string port = std::to_string(other.port());
  expect_rejected(run_lockstep(words("run --nproc-per-node 2 --master-port " + port + " -- true")),
                  1, {"port " + port + " is in use", "--standalone"});
}

}  // namespace
}  // namespace lockstep::testing
