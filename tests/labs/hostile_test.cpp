// Submissions that attack: in one batch with good ones, which keep all their points.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

#include "tests/labs/graded.h"
#include "tests/labs/hostile_submissions.h"

namespace lockstep::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kLab = "05_naive_all_reduce";

// All that the report says of a submission.
std::string all_words(const nlohmann::json& grade) {
  std::string words = grade.at("problem").is_null() ? "" : "does not compile";
  for (const nlohmann::json& check : grade.at("checks")) {
    words += " / " + check.at("outcome").get<std::string>();
  }
  return words;
}

bool has_bubblewrap() {
  return std::system("bwrap --unshare-pid --unshare-net --ro-bind / / true 2>/dev/null") == 0;
}

bool is_running(const std::string& argument) {
  return std::system(("pgrep -f '^sleep " + argument + "$' >/dev/null").c_str()) == 0;
}

// A socket of this machine that listens.
class Server {
 public:
  Server() : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address_;
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(::listen(socket_, 1), 0);
    ::getsockname(socket_, reinterpret_cast<sockaddr*>(&address_), &size);
  }
  ~Server() { ::close(socket_); }
  int port() const { return ntohs(address_.sin_port); }

 private:
  int socket_;
  sockaddr_in address_{};
};

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_bubblewrap()) GTEST_SKIP() << "bubblewrap is missing or does not work here";
    write_text(victim_, "untouched");
    std::filesystem::permissions(victim_, std::filesystem::perms::all);
  }
  void expect_untouched() const {
    EXPECT_EQ(read_text(victim_), "untouched");
    EXPECT_FALSE(std::filesystem::exists("/tmp/stolen"));
    EXPECT_FALSE(std::filesystem::exists("/tmp/lockstep_escape"));
  }

  HandedOut handed_out_;
  std::string victim_ = (handed_out_.submissions() / "victim.txt").string();
};

TEST_F(Hostile, SubmissionsCostTheirOwnPointsAndNothingElse) {
  const auto hostile = hostile_submissions(victim_);
  for (const HostileSubmission& submission : hostile) {
    handed_out_.submit(submission.name, kLab, submission.source);
  }
  handed_out_.submit("a_good_one", kLab, handed_out_.solution(kLab));
  handed_out_.submit("the_last_good_one", kLab, handed_out_.solution(kLab));
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("a_good_one").at("points"), 100);
  EXPECT_EQ(grades.at("the_last_good_one").at("points"), 100);
  for (const HostileSubmission& submission : hostile) {
    const nlohmann::json& grade = grades.at(submission.name);
    EXPECT_EQ(grade.at("points"), 0) << submission.name << ": " << all_words(grade);
    EXPECT_THAT(all_words(grade), HasSubstr(submission.outcome)) << submission.name;
  }
  expect_untouched();
}

TEST_F(Hostile, NoSubmissionLeavesTheSandbox) {
  const Server server;
  const std::string secret = (handed_out_.teacher() / "secret").string();
  handed_out_.submit("mallory", kLab,
                     escape_attempts(handed_out_.solution(kLab), secret, victim_, server.port()));
  const nlohmann::json grade = handed_out_.grade().at("mallory");
  EXPECT_EQ(grade.at("points"), 100) << grade.dump(1);
  EXPECT_FALSE(is_running(kLeftBehind));
  expect_untouched();
}

TEST_F(Hostile, TheCompilerReachesNeitherTheSecretNorTheSolution) {
  const std::string path = (handed_out_.teacher() / "secret").string();
  std::string secret = read_text(path);
  secret.pop_back();
  ASSERT_EQ(secret.size(), 64u);
  const std::string solution = handed_out_.solution(kLab);
  handed_out_.submit("includes_it", kLab, "#include \"" + path + "\"\n" + solution);
  handed_out_.submit("assembles_it", kLab,
                     "asm(\".data\\n.incbin \\\"" + path + "\\\"\\n\");\n" + solution);
  handed_out_.submit("includes_the_solution", kLab,
                     "#include \"" LOCKSTEP_SOURCE
                     "/tutorials/labs/05_naive_all_reduce/naive_all_reduce.cpp\"\n");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_FALSE(grades.at("includes_the_solution").at("problem").is_null());
  EXPECT_THAT(grades.dump(), Not(HasSubstr(secret)));
  EXPECT_FALSE(grades.at("includes_it").at("problem").is_null());
  EXPECT_FALSE(grades.at("assembles_it").at("problem").is_null());
}

TEST_F(Hostile, ALinkIsNoSource) {
  const std::filesystem::path folder = handed_out_.submissions() / "mallory";
  std::filesystem::create_directory(folder);
  std::filesystem::create_symlink(handed_out_.teacher() / kLab / "naive_all_reduce.cpp",
                                  folder / "naive_all_reduce.cpp");
  const nlohmann::json grades = handed_out_.grade();
  EXPECT_EQ(grades.at("mallory").at("points"), 0);
  EXPECT_THAT(grades.at("mallory").at("problem").get<std::string>(), HasSubstr("no lab's source"));
}

}  // namespace
}  // namespace lockstep::testing
