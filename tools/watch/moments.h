// A recorded step as a story: what all ranks do alike is one moment, with a sentence and a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/watch/recording.h"

namespace lockstep::watch {

// How the ranks share the work, as the events show it.
enum class Style { single, data_parallel, ddp, sharded, pipeline, tensor };

Style style_of(const StepRecording& recording);

// Says if the rows of a moment are numbered: a program that cuts the batch by itself doesn't tell
// the engine which rows of it a rank has.
bool are_numbered(const std::vector<const Event*>& rows);

// "rank", "device" (of DataParallel) or "stage".
std::string_view noun_of(Style style);

// A collective of the step, on all of its ranks.
struct Collective {
  std::uint64_t sequence = 0;
  std::string operation = {};  // "all_reduce"
  std::string label = {};      // "bucket 0", "the parameters of unit 1"
  enum class Of { gradients, parameters, other } of = Of::other;
  std::size_t num_elements = 0;  // of the whole buffer
  std::size_t num_bytes = 0;
  bool averages = false;                     // else it adds, or moves
  bool is_bucket = false;                    // the engine\'s; else a program calls it by itself
  std::vector<std::size_t> parameters = {};  // by their places in the first rank's list
  std::vector<std::size_t> cuts = {};        // where chunks begin and end, in elements, ascending
  std::size_t num_steps = 0;                 // of the plan, as it was run
  // By the moves that were seen, every element that a rank must end with has all ranks' parts.
  bool is_complete = false;
};

inline constexpr std::size_t kBackward = 2;

struct Moment {
  // "rows", "scatter", "replicate", "forward", "loss", "backward", "gradient", "call", "arrive",
  // "done", "freed", "message", "gather", "reduce", "update" or "end": what the page draws, and
  // under which its reason and the quoted lines of code stand.
  std::string kind;
  std::size_t phase = 0;  // data, forward, kBackward, update, end
  double us = 0;          // since the step began: the mean over the ranks
  int collective = -1;    // index
  std::vector<const Event*> events;
  std::string sentence;
  std::string reason;
};

struct Story {
  Style style = Style::single;
  std::vector<Collective> collectives;
  std::vector<Moment> moments;  // by their time; the last one is the step's end
  // Says what is wrong with the weights, or with a schedule; empty: nothing.
  std::string fault;
};

// REQUIRES: the recording outlives the story.
Story tell(const StepRecording& recording);

}  // namespace lockstep::watch
