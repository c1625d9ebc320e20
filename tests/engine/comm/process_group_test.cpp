// A process group does the same whatever it runs over: every plan, dtype and collective, over
// shared memory, over TCP, and over both between hosts that are played by names.
#include "engine/comm/process_group.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/plan/algorithms.h"
#include "engine/runtime/shared_memory.h"
#include "tests/engine/comm/comm_test_data.h"
#include "tests/engine/comm/process_ranks.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

using ::lockstep::testing::expect_error;

struct Way {
  const char* name;
  TransportChoice transport;
  int ranks_per_host;  // 0: all on one
};

std::ostream& operator<<(std::ostream& out, const Way& way) {
  return out << way.name;
}

Adjust along(const Way& way) {
  return [way](ProcessGroupOptions& options) {
    options.transport = way.transport;
    if (way.ranks_per_host > 0) {
      options.host = fmt::format("host{} of a test", options.rank / way.ranks_per_host);
    }
  };
}

class ProcessGroup : public ::testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(Ways, ProcessGroup,
                         ::testing::Values(Way{"shm", TransportChoice::automatic, 0},
                                           Way{"tcp", TransportChoice::tcp, 0},
                                           Way{"mixed", TransportChoice::automatic, 2}),
                         [](const auto& param) { return std::string(param.param.name); });

// Lengths around the size of a message of shared memory, beside the small ones.
const std::vector<std::size_t> kGroupLengths{0, 1, 5, 101, 4096, 16'384, 16'385, 100'003};

// Without automatic, whose choice depends on the way, and hierarchical, which asks for the hosts.
const std::vector<plan::AllReducePlan> kNamedPlans{kPlans.begin() + 1, kPlans.end() - 1};

TEST_P(ProcessGroup, AllReducesHaveTheBitsOfTheSerialInterpreterForEveryPlan) {
  for (const int world_size : {2, 3, 4, 8}) {
    for (const std::size_t num_elements : kGroupLengths) {
      const PlanBits bits(world_size, num_elements, kNamedPlans);
      run_group_threads(
          world_size, [&](Communicator& communicator) { bits.expect_from(communicator); },
          along(GetParam()));
    }
  }
}

TEST_P(ProcessGroup, TheOtherCollectivesEqualTheirDirectResults) {
  constexpr std::array kTypes{DType::float32};
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, std::size_t{70'000}}) {
    run_group_threads(
        5, [&](Communicator& communicator) { check_moves(communicator, kTypes, Device{}, length); },
        along(GetParam()));
  }
}

TEST_P(ProcessGroup, MessagesOfAnyLengthArriveInOrderAlsoWhenAllSendFirst) {
  run_group_threads(
      4,
      [](Communicator& communicator) {
        const int next = (communicator.rank() + 1) % 4;
        const int previous = (communicator.rank() + 3) % 4;
        for (const std::size_t length : {1, 1000, 2'000'000, 0, 7}) {
          communicator.send(Tensor::full({length}, communicator.rank()), next);
        }
        for (const std::size_t length : {1, 1000, 2'000'000, 0, 7}) {
          const Tensor received = Tensor::zeros({length});
          communicator.recv(received, previous);
          EXPECT_EQ(received.to_vector<float>(),
                    std::vector<float>(length, static_cast<float>(previous)));
        }
      },
      along(GetParam()));
}

TEST_P(ProcessGroup, AnAbortInTheMiddleOfTransfersEndsEveryRank) {
  for (const plan::AllReducePlan plan : kPlans) {
    const auto errors = errors_of_group_threads(
        3,
        [&](Communicator& communicator) {
          all_reduce_until_rank_0_aborts(communicator, plan, 200'000, 10);
        },
        along(GetParam()));
    expect_errors(errors, ErrorCode::Comm, "rank 0 aborted the group: enough");
  }
}

TEST_P(ProcessGroup, ARankThatLeavesFailsThoseThatNeedIt) {
  const auto errors = errors_of_group_threads(
      3,
      [](Communicator& communicator) {
        communicator.barrier();
        if (communicator.rank() != 1) communicator.barrier();
      },
      along(GetParam()));
  EXPECT_FALSE(errors[1]);
  expect_errors({errors[0], errors[2]}, ErrorCode::Comm, "rank 1 left the group while rank");
}

TEST_P(ProcessGroup, AMessageOutlivesItsSender) {
  run_group_threads(
      2,
      [](Communicator& communicator) {
        constexpr std::size_t kLarge = 3'000'000;
        if (communicator.rank() == 0) return void(communicator.send(Tensor::full({kLarge}, 7), 1));
        const Tensor received = Tensor::zeros({kLarge});
        communicator.recv(received, 0);
        EXPECT_EQ(received.to_vector<float>(), std::vector<float>(kLarge, 7));
      },
      along(GetParam()));
}

TEST_P(ProcessGroup, SixtyFourRanksOnAnyNumberOfCoresAllReduce) {
  run_group_threads(
      64,
      [](Communicator& communicator) {
        for (const plan::AllReducePlan plan :
             {plan::AllReducePlan::automatic, plan::AllReducePlan::ring}) {
          const Tensor buffer = Tensor::full({10'000}, communicator.rank());
          communicator.all_reduce(buffer, {.plan = plan});
          EXPECT_EQ(buffer.to_vector<float>(), std::vector<float>(10'000, 2016));
        }
      },
      along(GetParam()));
}

TEST_P(ProcessGroup, TellsHowItsRanksTalk) {
  const std::string way = GetParam().name;
  run_group_threads(
      4,
      [&](Communicator& communicator) {
        EXPECT_EQ(communicator.description(),
                  "own: auto over " + (way == "mixed" ? std::string("shm+tcp") : way));
        EXPECT_EQ(communicator.plan_for(1'000'000), way == "mixed"
                                                        ? plan::AllReducePlan::hierarchical
                                                        : plan::AllReducePlan::two_shot);
      },
      along(GetParam()));
}

TEST(ProcessGroupOfHosts, AllReducesHierarchicallyWithTheSameBitsOnAllRanks) {
  const std::vector<int> hosts{0, 0, 1, 1, 1, 2};
  for (const std::size_t num_elements : {1, 1000, 200'003}) {
    const plan::RankBuffers inputs = rounding_buffers(6, num_elements);
    plan::RankBuffers expected = inputs;
    plan::interpret(plan::hierarchical_all_reduce(hosts, num_elements), expected);
    run_group_threads(
        6,
        [&](Communicator& communicator) {
          const auto rank = static_cast<std::size_t>(communicator.rank());
          const Tensor buffer = tensor_of(inputs[rank], communicator.rank());
          communicator.all_reduce(buffer);
          EXPECT_TRUE(buffer.to_vector<double>() == expected[rank]);
        },
        on_hosts({"a 1", "a 1", "b 1", "b 1", "b 1", "c 1"}));
  }
}

TEST(ProcessGroupMeeting, SharedMemoryBetweenHostsIsRefusedWithTheHosts) {
  const auto errors = errors_of_group_threads(
      2, [](Communicator&) {},
      [](ProcessGroupOptions& options) {
        options.transport = TransportChoice::shm;
        options.host = options.rank == 0 ? "anna x" : "bert x";
      });
  expect_errors(
      errors, ErrorCode::Comm,
      "shared memory needs all ranks on one host, found rank 0 on anna and rank 1 on bert; use "
      "the automatic transport or TCP");
}

TEST(SharedMemory, IsReadAndWrittenWhereItLies) {
  runtime::SharedMemory memory;
  runtime::MappedMemory mapped(memory.address(), "rank 3");
  for (const std::size_t num_bytes : {std::size_t{64}, std::size_t{1000}, std::size_t{100} << 20}) {
    auto* const data = static_cast<char*>(memory.allocate(num_bytes));
    std::byte* const theirs = mapped.at(*memory.offset_of(data), num_bytes);
    data[num_bytes - 1] = 7;
    EXPECT_EQ(theirs[num_bytes - 1], std::byte{7});
    theirs[0] = std::byte{5};
    EXPECT_EQ(data[0], 5);
  }
  const int elsewhere = 0;
  EXPECT_EQ(memory.offset_of(&elsewhere), std::nullopt);
}

TEST(SharedMemory, AnAddressWhereItIsNoLongerIsRefused) {
  std::string address;
  {
    const runtime::SharedMemory memory;
    address = memory.address();
    expect_error(ErrorCode::Comm, "is not the memory that it announced",
                 [&] { runtime::MappedMemory(address, "rank 7").at(std::uint64_t{1} << 30, 64); });
  }
  expect_error(ErrorCode::Comm, "cannot open the memory of rank 7 (process",
               [&] { runtime::MappedMemory(address, "rank 7"); });
}

TEST(SharedMemory, OfAForkedProcessIsItsOwn) {
  auto& memory = runtime::SharedMemory::of_tensors();
  auto* const data = static_cast<char*>(memory.allocate(100'000));
  data[0] = 1;
  const Tensor mine = Tensor::full({50'000}, 3);
  const pid_t child = fork();
  if (child == 0) {
    const bool is_copy = data[0] == 1 && mine.to_vector<float>()[49'999] == 3;
    data[0] = 2;
    mine.copy_from(Tensor::full({50'000}, 4));
    _exit(is_copy && mine.to_vector<float>()[0] == 4 ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(data[0], 1);
  EXPECT_EQ(mine.to_vector<float>(), std::vector<float>(50'000, 3));
  memory.release(data, 100'000);
}

std::size_t num_entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<std::size_t>(std::distance(begin(entries), end(entries)));
}

TEST(SharedMemory, IsLetGoOfByGroupsThatEnded) {
  const auto make_groups = [](int num_groups) {
    for (int i = 0; i < num_groups; ++i) {
      run_group_threads(8, [](Communicator& communicator) {
        const Tensor buffer = Tensor::full({100'000}, communicator.rank());
        communicator.all_reduce(buffer);
        const int next = (communicator.rank() + 1) % 8;
        communicator.send(buffer, next);
        communicator.recv(buffer, (communicator.rank() + 7) % 8);
      });
    }
  };
  make_groups(5);
  const std::size_t num_open = num_entries("/proc/self/fd");
  const std::size_t num_mapped = num_entries("/proc/self/map_files");
  make_groups(100);
  EXPECT_EQ(num_entries("/proc/self/fd"), num_open);
  // A message that was left unread, or blocks that the pool keeps, are a few at most.
  EXPECT_LE(num_entries("/proc/self/map_files"), num_mapped + 20);
}

// Below what a rank maps of another one's memory, so that none can.
class NarrowAddressSpace {
 public:
  NarrowAddressSpace() {
    getrlimit(RLIMIT_AS, &before_);
    std::size_t num_pages = 0;
    std::ifstream("/proc/self/statm") >> num_pages;
    rlimit narrow = before_;
    narrow.rlim_cur = num_pages * 4096 + (std::size_t{40} << 20);
    setrlimit(RLIMIT_AS, &narrow);
  }
  ~NarrowAddressSpace() { setrlimit(RLIMIT_AS, &before_); }
  NarrowAddressSpace(const NarrowAddressSpace&) = delete;
  NarrowAddressSpace& operator=(const NarrowAddressSpace&) = delete;

 private:
  rlimit before_;
};

TEST(ProcessGroupMeeting, RanksThatCannotMapEachOthersMemoryUseTcpAndSayWhy) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need the address space";
#endif
  const NarrowAddressSpace narrow;
  ::testing::internal::CaptureStderr();
  run_group_threads(2, [](Communicator& communicator) {
    EXPECT_EQ(communicator.description(), "own: auto over tcp");
    const Tensor buffer = Tensor::full({1000}, communicator.rank() + 1);
    communicator.all_reduce(buffer);
    EXPECT_EQ(buffer.to_vector<float>(), std::vector<float>(1000, 3));
  });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("no shared memory, so ranks use TCP: rank 1: cannot map "
                                   "67108864 bytes of the memory of rank 0"));
  const auto errors = errors_of_group_threads(
      2, [](Communicator&) {},
      [](ProcessGroupOptions& options) { options.transport = TransportChoice::shm; });
  expect_errors(errors, ErrorCode::Comm, "cannot map 67108864 bytes of the memory of rank");
}

TEST(ProcessGroupMeeting, ArgumentsAreChecked) {
  ProcessGroupOptions options;
  options.world_size = 2;
  expect_error(ErrorCode::Usage, "2 ranks need a store to meet",
               [&] { make_process_group(options); });
  options.rank = 2;
  expect_error(ErrorCode::Usage, "found rank 2 and world size 2",
               [&] { make_process_group(options); });
  expect_error(ErrorCode::Usage, "unknown transport 'carrier pigeon'; use one of: auto, shm, tcp",
               [] { parse_transport_choice("carrier pigeon"); });
}

}  // namespace
}  // namespace lockstep::comm
