#include "tools/doctor/record/event.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/core/thread_context.h"
#include "tools/doctor/record/records.h"

namespace lockstep::doctor {

namespace {

constexpr std::size_t kWholeBytes = std::size_t{64} << 10;
constexpr std::size_t kNumWords = 8192;
constexpr std::size_t kEndBytes = 4096;

// splitmix64 (public domain, Vigna).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::uint64_t hash_bytes(std::uint64_t hash, const std::byte* bytes, std::size_t count) {
  for (std::size_t i = 0; i < count; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, std::min<std::size_t>(8, count - i));
    hash = (hash ^ word) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

// JSON readers hold numbers below 2^53 exactly.
std::uint64_t finish(std::uint64_t hash) {
  return mix(hash) >> 12;
}

// The i-th of count sampled places among size elements: one in each of count equal parts.
std::size_t place_of(std::size_t i, std::size_t count, std::size_t size) {
  const std::size_t begin = i * size / count;
  const std::size_t end = (i + 1) * size / count;
  return begin + mix(i) % (end - begin);
}

template <typename T>
Sketch sketch_elements(const T* elements, std::size_t size) {
  Sketch sketch{};
  const std::size_t count = std::min(size, kNumSampled);
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(elements[place_of(i, count, size)]);
    std::uint64_t signs = mix(i + 0x5eed);
    for (double& sum : sketch) {
      sum += (signs & 1) != 0 ? value : -value;
      signs >>= 1;
    }
  }
  return sketch;
}

}  // namespace

Sketch sketch_of(ConstTensorView values) {
  if (values.data == nullptr || values.num_elements == 0) return {};
  if (values.dtype == DType::float32) {
    return sketch_elements(static_cast<const float*>(values.data), values.num_elements);
  }
  if (values.dtype == DType::float64) {
    return sketch_elements(static_cast<const double*>(values.data), values.num_elements);
  }
  return {};
}

bool is_zero(const Sketch& sketch) {
  return std::ranges::all_of(sketch, [](double sum) { return sum == 0; });
}

std::uint64_t hash_of(ConstTensorView values) {
  if (values.data == nullptr) return 0;
  const auto* bytes = static_cast<const std::byte*>(values.data);
  const std::size_t count = values.num_bytes();
  if (count <= kWholeBytes) return finish(hash_bytes(count, bytes, count));
  std::uint64_t hash = count;
  for (std::size_t i = 0; i < kNumWords; ++i) {
    hash = hash_bytes(hash, bytes + i * (count / 8) / kNumWords * 8, 8);
  }
  return finish(hash_bytes(hash, bytes + count - kEndBytes, kEndBytes));
}

std::vector<std::uint64_t> hash_rows(ConstTensorView values, std::size_t num_rows) {
  std::vector<std::uint64_t> hashes;
  if (values.data == nullptr || num_rows == 0) return hashes;
  const auto* bytes = static_cast<const std::byte*>(values.data);
  const std::size_t row_bytes = values.num_bytes() / num_rows;
  for (std::size_t row = 0; row < num_rows; ++row) {
    hashes.push_back(finish(hash_bytes(row_bytes, bytes + row * row_bytes, row_bytes)));
  }
  return hashes;
}

namespace {

using nlohmann::json;

constexpr const char* kFolder = "LOCKSTEP_AUDIT";

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string line_of(const json& event) {
  return event.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

// This process's place among its host's ranks, from its launcher.
std::string first_line() {
  return line_of({{"event", "process"},
                  {"process", ::getpid()},
                  {"rank", variable("RANK")},
                  {"local_rank", variable("LOCAL_RANK")},
                  {"local_world_size", variable("LOCAL_WORLD_SIZE")}});
}

// The file of this process; a fork opens its own.
class File {
 public:
  void write(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (owner_ != ::getpid()) open();
    if (descriptor_ >= 0 &&
        ::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
      give_up("cannot write to it");
    }
  }

 private:
  void open() {
    owner_ = ::getpid();
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    path_ = fmt::format("{}/{}-{}.jsonl", variable(kFolder), owner_, now);
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor_ < 0) return give_up("cannot make it");
    const std::string line = first_line();
    if (::write(descriptor_, line.data(), line.size()) < 0) give_up("cannot write to it");
  }
  void give_up(const char* why) {
    std::fprintf(stderr, "[audit] %s: %s; nothing more is recorded\n", path_.c_str(), why);
    trace::set_observer(nullptr);
    descriptor_ = -1;
  }

  std::mutex mutex_;
  pid_t owner_ = 0;
  int descriptor_ = -1;
  std::string path_;
};

File& file() {
  static auto& instance = *new File;  // outlives every thread
  return instance;
}

struct Groups {
  std::mutex mutex;
  std::vector<trace::RankGroup> all{{}};  // indexed by number
  std::uint32_t of_process = 0;           // the last one whose ranks are processes
};

Groups& groups() {
  static auto& instance = *new Groups;  // outlives every thread
  return instance;
}

}  // namespace

bool is_wanted() {
  return !variable(kFolder).empty();
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::string new_group_name() {
  static std::atomic<int> count{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return fmt::format("{}.{}.{}", ::getpid(), now, ++count);
}

std::uint32_t register_group(const trace::RankGroup& group) {
  const std::lock_guard lock(groups().mutex);
  groups().all.push_back(group);
  const auto number = static_cast<std::uint32_t>(groups().all.size() - 1);
  if (group.name.empty()) {  // its ranks are threads
    groups().all.back().name = new_group_name();
  } else {
    groups().of_process = number;
  }
  return number;
}

Rank current_rank() {
  const ThreadContext& context = thread_context();
  const std::lock_guard lock(groups().mutex);
  const bool is_thread = context.group != 0;
  const std::uint32_t number = is_thread ? context.group : groups().of_process;
  if (number == 0) return {};
  const trace::RankGroup& group = groups().all.at(number);
  return {number, group.name, is_thread ? context.rank : group.rank, group.world_size};
}

Rank rank_of(std::uint32_t group, int rank) {
  const std::lock_guard lock(groups().mutex);
  const trace::RankGroup& found = groups().all.at(group);
  return {group, found.name, rank, found.world_size};
}

std::uint64_t write_event(const char* name, json fields, const Rank& by) {
  const std::uint64_t number = next_number();
  fields.update(json(Origin{static_cast<std::uint64_t>(::getpid()), number, by.group_name, by.rank,
                            by.world_size}));
  fields["event"] = name;
  file().write(line_of(fields));
  return number;
}

}  // namespace lockstep::doctor
