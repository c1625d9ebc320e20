// One training step, as an observer of the engine saw it, rank by rank, or as a puzzle's clock
// played it: the raw material of the page (moments.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/trace/recorder.h"

namespace lockstep::watch {

// Something that happened on one rank, or on one device of DataParallel.
struct Event {
  enum class Kind {
    rows,      // the model was called with rows of the batch
    forward,   // an operation was computed
    backward,  // its backward begins
    gradient,  // a parameter's gradient is there
    call,      // a collective or a message was called
    arrival,   // a step of its plan, or a copy, brought data
    done,      // the collective is over; a message has arrived
    freed,     // whole parameters, or a whole gradient, were given back
    update,    // the optimizer has changed the weights
  };
  Kind kind = Kind::rows;
  int rank = 0;
  std::int64_t ns = 0;          // when it was over, on the recording's clock
  std::string name = {};        // the operation's
  std::uint64_t number = 0;     // forward, backward: the operation's place in the rank's step;
                                // call, arrival, done: the sequence number
  std::uint64_t first_row = 0;  // of the rows it works on, in the whole batch
  std::size_t num_rows = 0;
  std::uint64_t hash = 0;     // rows: of their values
  std::uintptr_t memory = 0;  // gradient: where it lies; call: the buffer; freed: the shard
  std::uintptr_t leaf = 0;    // gradient: the parameter; of a schedule, call, freed and update, too
  int peer = -1;              // a message's other rank
  std::vector<int> from = {};  // arrival: the senders
  std::size_t step = 0;        // arrival: of the plan
  std::size_t offset = 0;      // arrival: of the chunk in the buffer, in elements
  std::size_t num_elements = 0;
  std::size_t num_bytes = 0;
  bool adds = false;               // arrival: to what lay there
  bool is_gradient = false;        // send: else an activation; freed: else parameters
  std::vector<float> values = {};  // with numbers: of the gradient, the buffer, the chunk
};

struct Parameter {
  std::uintptr_t leaf = 0;
  std::string name = {};   // "0.weight"; made of the shape if it is not known
  std::string shape = {};  // "[64, 10]"
  std::size_t num_elements = 0;
  std::size_t num_bytes = 0;
  std::uintptr_t gradient = 0;     // where the gradient lay when the optimizer used it
  std::uint64_t hash = 0;          // of the weights after the update
  std::vector<float> values = {};  // the weights after the update, with numbers
};

// One rank's step.
struct RankRecord {
  int rank = 0;
  std::vector<Event> events;          // in the order in which they were told
  std::vector<Parameter> parameters;  // of the module, as it was called; else the optimizer's
  std::vector<Parameter> updated;     // of its optimizer; empty: it has none
  std::string optimizer;              // "SGD with learning rate 0.1"
  std::size_t num_states = 0;         // tensors that the optimizer keeps for each parameter

  // The place of a parameter; parameters.size(): it is none of these.
  std::size_t place_of(std::uintptr_t leaf) const;
  std::string name_of(std::uintptr_t leaf) const;  // empty: it is none of these
};

// A schedule that was not run, but played on a model of a machine.
struct Schedule {
  std::string wrong;          // the rule that it breaks; empty: none
  bool begins_whole = false;  // ranks hold all parameters between steps
};

struct StepRecording {
  std::size_t step = 0;  // its number in the training, from 0
  bool has_numbers = false;
  bool is_wrapped = false;  // the program made a Ddp: its hooks send the gradients
  std::optional<Schedule> schedule;
  std::map<int, RankRecord> ranks;
  trace::Recording trace;  // spans of the whole training, for the lanes; may be empty

  // From the first event, or a schedule's begin, to the last one, in nanoseconds on the recording's
  // clock.
  std::int64_t begin_ns() const;
  std::int64_t end_ns() const;
};

}  // namespace lockstep::watch
