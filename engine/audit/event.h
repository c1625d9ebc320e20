// One thing that happened, as one line of JSON in this process's file of the folder LOCKSTEP_AUDIT.
//
//   {"event":"save","process":4711,"number":12,"group":"4711.1","rank":1,"world":2,"path":"w.st"}
//
// number: counts this process's events, in the order in which they happened. Lines are written at
// once, so that a process that is killed leaves what it did. A process that forks has a file of its
// own. A file that cannot be written is left out, and says so once on stderr: a program that is
// examined goes on as ever.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::audit {

// The number of the next event: what is compared to say what came first. Any thread.
std::uint64_t next_number();

// An address, which tells things of one process apart.
std::uint64_t address_of(const void* pointer);

// Text as a JSON string, with its quotes.
std::string json_text(std::string_view text);
std::string list_of(std::span<const std::uint64_t> numbers);  // "[1,2]"
std::string list_of(std::span<const double> numbers);         // a NaN or infinity is null
std::string list_of(std::span<const std::string> texts);

class Event {
 public:
  // Of the calling line of work (rank.h).
  explicit Event(std::string_view name);
  // Writes the line.
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  std::uint64_t number() const { return number_; }
  Event& add(std::string_view key, std::string_view text);
  Event& add(std::string_view key, std::uint64_t value);
  Event& add(std::string_view key, double value);
  // json: a value as it shall stand there.
  Event& add_json(std::string_view key, std::string_view json);

 private:
  std::uint64_t number_;
  std::string line_;
};

}  // namespace lockstep::audit
