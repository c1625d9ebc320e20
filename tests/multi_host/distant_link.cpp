// A link between two hosts (network namespaces) that are far apart, for kernels without netem:
// every IP packet that enters one end leaves the other end DELAY milliseconds later. The ends are
// TUN devices, link0 in the namespace of process A and link1 in that of process B; they are gone
// when this program ends. Needs root.
//
//   distant_link A B DELAY
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargestPacket = 65536;
constexpr std::size_t kMostUnderWay = 20000;  // packets; a real link's buffers are finite too

int check(int result, const std::string& what) {
  if (result < 0) throw std::system_error(errno, std::generic_category(), what);
  return result;
}

void enter_namespace_of(const std::string& process) {
  const std::string path = "/proc/" + process + "/ns/net";
  const int file = check(::open(path.c_str(), O_RDONLY | O_CLOEXEC), path);
  check(::setns(file, CLONE_NEWNET), "setns " + path);
  ::close(file);
}

// One end of the link, in the namespace where the program is now.
int open_end(const std::string& name) {
  const int file = check(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TUN | IFF_NO_PI;
  std::strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  check(::ioctl(file, TUNSETIFF, &request), "TUNSETIFF " + name);
  return file;
}

struct Packet {
  Clock::time_point due;
  std::vector<char> bytes;
};

// From one end to the other.
class Direction {
 public:
  Direction(int from, int to, Clock::duration delay) : from_(from), to_(to), delay_(delay) {}

  int from() const { return from_; }
  bool is_empty() const { return under_way_.empty(); }
  Clock::time_point next_due() const { return under_way_.front().due; }

  void take() {
    std::vector<char> bytes(kLargestPacket);
    for (;;) {
      const ssize_t size = ::read(from_, bytes.data(), bytes.size());
      if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
      // An end that is down for the moment loses what enters it.
      if (size < 0 && errno == EIO) return;
      check(static_cast<int>(size), "read");
      if (under_way_.size() == kMostUnderWay) continue;
      under_way_.push_back({Clock::now() + delay_, {bytes.begin(), bytes.begin() + size}});
    }
  }

  void deliver() {
    while (!is_empty() && next_due() <= Clock::now()) {
      const std::vector<char>& bytes = under_way_.front().bytes;
      // What the other end does not take is lost, as on a real link.
      [[maybe_unused]] const ssize_t size = ::write(to_, bytes.data(), bytes.size());
      under_way_.pop_front();
    }
  }

 private:
  int from_;
  int to_;
  Clock::duration delay_;
  std::deque<Packet> under_way_;
};

std::optional<timespec> time_until_next(const std::array<Direction, 2>& directions) {
  std::optional<Clock::time_point> due;
  for (const Direction& direction : directions) {
    if (direction.is_empty()) continue;
    due = due ? std::min(*due, direction.next_due()) : direction.next_due();
  }
  if (!due) return std::nullopt;
  const auto left = std::max(Clock::duration::zero(), *due - Clock::now());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  return timespec{seconds.count(), std::chrono::nanoseconds(left - seconds).count()};
}

[[noreturn]] void carry(std::array<Direction, 2> directions) {
  std::array<pollfd, 2> ends{
      {{directions[0].from(), POLLIN, 0}, {directions[1].from(), POLLIN, 0}}};
  for (;;) {
    const std::optional<timespec> wait = time_until_next(directions);
    const int ready = ::ppoll(ends.data(), ends.size(), wait ? &*wait : nullptr, nullptr);
    if (ready < 0 && errno != EINTR) check(ready, "ppoll");
    for (Direction& direction : directions) {
      direction.take();
      direction.deliver();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: distant_link PROCESS_A PROCESS_B DELAY_MS\n", stderr);
    return 2;
  }
  try {
    enter_namespace_of(argv[1]);
    const int first = open_end("link0");
    enter_namespace_of(argv[2]);
    const int second = open_end("link1");
    std::puts("ready");
    std::fflush(stdout);
    const std::chrono::milliseconds delay(std::atoi(argv[3]));
    carry({Direction(first, second, delay), Direction(second, first, delay)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "distant_link: %s\n", error.what());
    return 1;
  }
}
