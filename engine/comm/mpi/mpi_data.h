// The MPI library's own collectives, called with tensors.
#pragma once

#include <mpi.h>

#include "engine/comm/collective_call.h"

namespace lockstep::comm {

// What MPI calls a dtype when it only moves it.
MPI_Datatype mpi_type(DType dtype);

// Throws Error{DType} when MPI cannot reduce this dtype (bfloat16, float16), Error{Shape} when a
// part has more elements than MPI counts to.
void require_served(const CollectiveCall& call);

// Carries out all_reduce, broadcast, all_gather or reduce_scatter; returns when it is done. A
// barrier does nothing: comparing the calls was one. REQUIRES: all ranks have come with the same
// call; the caller holds the session's mutex.
void move_with_mpi(const CollectiveCall& call, MPI_Comm communicator, int rank, int world_size);

}  // namespace lockstep::comm
