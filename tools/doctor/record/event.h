// One thing that happened, as one line of JSON in this process's file of the folder LOCKSTEP_AUDIT.
//
//   {"event":"save","process":4711,"number":12,"group":"4711.1","rank":1,"world":2,"path":"w.st"}
//
// number: counts this process's events, in the order in which they happened. Lines are written at
// once, so that a process that is killed leaves what it did. A process that forks has a file of its
// own. If the file cannot be written, one line on stderr says so, nothing more is recorded, and the
// program goes on as ever.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "engine/trace/observer.h"

namespace lockstep::record {

// True if LOCKSTEP_AUDIT names a folder.
bool is_wanted();

// The number of the next event: what is compared to say what came first. Any thread.
std::uint64_t next_number();

// Text as a JSON string, with its quotes.
std::string json_text(std::string_view text);
std::string list_of(std::span<const std::uint64_t> numbers);  // "[1,2]"
std::string list_of(std::span<const double> numbers);         // a NaN or infinity is null
std::string list_of(std::span<const std::string> texts);

class Event {
 public:
  // An event of the calling thread's rank.
  explicit Event(std::string_view name);
  // Writes the line.
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  std::uint64_t number() const { return number_; }
  Event& add(std::string_view key, std::string_view text);
  Event& add(std::string_view key, std::uint64_t value);
  Event& add(std::string_view key, double value);
  void add(const trace::Field& field);
  // json: a value as it shall stand there.
  Event& add_json(std::string_view key, std::string_view json);

 private:
  std::uint64_t number_;
  std::string line_;
};

// --- groups of ranks ---
// A group has a number in each process, and a name that all its processes share.

// A name that no other group has, of this process or another of this machine.
std::string new_group_name();
// Returns the number of the group, 1 or more.
std::uint32_t register_group(const trace::RankGroup& group);
std::string group_name(std::uint32_t group);  // empty for 0

// The rank that the calling thread works for: ThreadContext's, or else its process's.
struct Rank {
  std::uint32_t group = 0;  // its number; 0: no group, so one rank alone
  std::string group_name;
  int rank = 0;
  int world_size = 1;
};
Rank current_rank();

}  // namespace lockstep::record
