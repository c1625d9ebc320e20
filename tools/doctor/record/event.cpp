#include "tools/doctor/record/event.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/core/thread_context.h"

namespace lockstep::record {
namespace {

constexpr const char* kFolder = "LOCKSTEP_AUDIT";

std::string number_or_null(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Which program this is, and where it stands among its host's ranks, as its launcher says.
std::string first_line() {
  std::string program;
  std::ifstream command("/proc/self/cmdline");
  std::getline(command, program, '\0');
  return fmt::format(
      "{{\"event\":\"process\",\"process\":{},\"number\":0,\"program\":{},\"rank\":{},"
      "\"local_rank\":{},\"local_world\":{}}}\n",
      ::getpid(), json_text(program), json_text(variable("RANK")),
      json_text(variable("LOCAL_RANK")), json_text(variable("LOCAL_WORLD_SIZE")));
}

// The file of this process; after a fork another one.
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
  std::vector<trace::RankGroup> all{{}};  // by number
  std::uint32_t of_process = 0;           // the last one whose ranks are processes
};

Groups& groups() {
  static auto& instance = *new Groups;  // outlives every thread
  return instance;
}

template <typename T, typename Write>
std::string joined(std::span<const T> values, const Write& write) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ',';
    text += write(value);
  }
  return text + ']';
}

}  // namespace

bool is_wanted() {
  return !variable(kFolder).empty();
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

std::string json_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      result += c;
    }
  }
  return result + '"';
}

std::string list_of(std::span<const std::uint64_t> numbers) {
  return joined(numbers, [](std::uint64_t value) { return fmt::format_int(value).str(); });
}
std::string list_of(std::span<const double> numbers) {
  return joined(numbers, number_or_null);
}
std::string list_of(std::span<const std::string> texts) {
  return joined(texts, [](const std::string& text) { return json_text(text); });
}

Event::Event(std::string_view name) : number_(next_number()) {
  const Rank me = current_rank();
  line_ = fmt::format(
      "{{\"event\":\"{}\",\"process\":{},\"number\":{},\"group\":{},\"rank\":{},\"world\":{}", name,
      ::getpid(), number_, json_text(me.group_name), me.rank, me.world_size);
}

Event::~Event() {
  file().write(line_ + "}\n");
}

Event& Event::add(std::string_view key, std::string_view text) {
  return add_json(key, json_text(text));
}
Event& Event::add(std::string_view key, std::uint64_t value) {
  return add_json(key, fmt::format_int(value).str());
}
Event& Event::add(std::string_view key, double value) {
  return add_json(key, number_or_null(value));
}
void Event::add(const trace::Field& field) {
  struct Add {
    Event& event;
    std::string_view key;
    void operator()(std::string_view text) { event.add(key, text); }
    void operator()(std::uint64_t value) { event.add(key, value); }
    void operator()(double value) { event.add(key, value); }
    void operator()(bool value) { event.add_json(key, value ? "true" : "false"); }
    void operator()(std::span<const std::string> texts) { event.add_json(key, list_of(texts)); }
    void operator()(std::span<const void* const> pointers) {
      std::vector<std::uint64_t> addresses;
      for (const void* pointer : pointers) addresses.push_back(trace::address_of(pointer));
      event.add_json(key, list_of(addresses));
    }
  };
  std::visit(Add{*this, field.key}, field.value);
}
Event& Event::add_json(std::string_view key, std::string_view json) {
  line_ += fmt::format(",\"{}\":{}", key, json);
  return *this;
}

std::string new_group_name() {
  static std::atomic<int> count{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  return fmt::format("{}.{}.{}", ::getpid(), now, ++count);
}

std::uint32_t register_group(const trace::RankGroup& group) {
  const bool has_processes = !group.name.empty();
  const std::lock_guard lock(groups().mutex);
  groups().all.push_back(group);
  const auto number = static_cast<std::uint32_t>(groups().all.size() - 1);
  if (has_processes) {
    groups().of_process = number;
  } else {
    groups().all.back().name = new_group_name();
  }
  return number;
}

std::string group_name(std::uint32_t group) {
  const std::lock_guard lock(groups().mutex);
  return groups().all.at(group).name;
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

}  // namespace lockstep::record
