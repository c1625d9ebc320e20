// Where the ranks' output goes: from their pipes to the console, to logs, or to both.
#pragma once

#include <string_view>

#include "engine/launch/console.h"
#include "engine/launch/worker.h"
#include "engine/launch/worker_group.h"

namespace lockstep::launch {

class GroupOutput {
 public:
  static constexpr std::size_t kMaxReadBytes = 64 * 1024;

  explicit GroupOutput(const WorkerGroupOptions& options) : options_(options) {}

  // Decides where the streams of a worker go, and opens their logs. Throws Error{Io} when a log of
  // the first start cannot be made; later it is as with a log that cannot grow: one line says so,
  // and the console gets the output.
  void open(Worker& worker, int restart_count);

  // Reads from stream 1 (stdout) or 2 (stderr), which is readable, once: as much as there is, up to
  // kMaxReadBytes. Closes it at its end.
  void read(Worker& worker, int number);
  // Also without its end, where nobody is left who could say more.
  void close(Worker& worker, int number);

  // The line in which a rank said why it ends is held back while it may be said once for all ranks.
  // This shows it after all, if there is one.
  void show_held_line(Worker& worker);

  // A line of the launcher's own, on stderr.
  void say(std::string_view message);

  // What the console waits for; console.h says what these mean.
  const Console& console() const { return console_; }

  // Writes to the console what it takes without waiting.
  // REQUIRES: console().waiting_for() is writable.
  void write_some();

  // Nobody reads the console any more: what waits for it, and all later output, is dropped.
  void give_up_console() { console_.give_up(); }

  // The reader of stdout has gone, as in `lockstep run ... | head`.
  bool reader_has_gone() const { return reader_has_gone_; }
  // Something could not be written for another reason.
  bool console_has_failed() const { return console_has_failed_; }

 private:
  // On the console, where this stream goes there.
  void show(Worker& worker, int number, std::string_view line);
  void lose_log(Worker& worker, int number, std::string_view why);
  void print_line(Worker& worker, int number, std::string_view line);

  const WorkerGroupOptions& options_;
  Console console_;
  bool reader_has_gone_ = false;
  bool console_has_failed_ = false;
};

}  // namespace lockstep::launch
