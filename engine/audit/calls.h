// What a communicator was asked for, and which memory it moved: events "call", "done" and "left",
// and what a step asks about its gradients.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/views.h"

namespace lockstep::audit {

enum class Waited { no, yes };  // whether the call is over when it returns

struct Call {
  std::uint32_t group = 0;
  int rank = 0;
  std::uint64_t sequence = 0;
  std::string_view operation;
  std::string_view detail;       // what else ranks must have alike: "sum", "from rank 0"
  int peer = -1;                 // of send and recv
  std::uint64_t bytes_sent = 0;  // of send
  std::uint64_t num_elements = 0;
  DType dtype = DType::float32;
  ConstTensorView memory;  // empty where it is not the CPU's
  Waited waited = Waited::yes;
};

// Before the call is carried out.
void note_call(const Call& call);
// When it has been, without an error.
void note_done(std::uint32_t group, int rank, std::string_view operation, std::uint64_t sequence);
// Work::wait() of an asynchronous call.
void note_waited(const void* memory, std::uint64_t sequence);
// A rank's communicator is gone.
void note_left(std::uint32_t group, int rank);

// What moved through some memory since an event.
struct Touched {
  std::uint64_t number = 0;      // of the last call; 0: none
  std::uint64_t unfinished = 0;  // of a call that nobody has waited for; 0: none
};
Touched touched_since(std::uint32_t group, int rank, std::uint64_t number, ConstTensorView memory);

// Bytes of the calls since an event.
struct Traffic {
  std::uint64_t collective_bytes = 0;  // of their buffers
  std::uint64_t sent_bytes = 0;        // by send
};
Traffic traffic_since(std::uint32_t group, int rank, std::uint64_t number);

}  // namespace lockstep::audit
