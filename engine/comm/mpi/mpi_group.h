// The communicator that uses the collectives of an MPI library, for ranks that mpirun or srun
// started. Read comm/communicator.h first; this header lists the differences.
//
// Calls:   the ranks first compare their calls by an all-gather of a few words. Then the library's
//          own blocking collective moves the data.
// Devices: CPU tensors of at most 2^31 - 1 elements.
// Types:   bfloat16 and float16 are moved but not reduced: MPI does not know them.
// Results: depend on the library; min and max may lose a NaN.
// Plans:   the library chooses its algorithms; an all_reduce that names one is Error{Usage}.
// Messages: send and recv are Error{Usage}; --comm own carries messages.
// Failure: no call into MPI can be interrupted. If a call, or MPI_Init, takes longer than its time
//          limit, this process prints one line that names what it waits for, and ends with exit
//          code 1. After an error it ends without MPI_Finalize. mpirun or srun then ends the other
//          ranks.
// Threads: needs MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

struct MpiGroupOptions {
  // Checked against MPI's values.
  int rank = 0;
  int world_size = 1;
  double timeout_seconds = 30;  // to meet, and for the communicator's calls
  std::string started_by;       // who gave this process its rank, for errors: "mpirun (Open MPI)"
};

// True if this build has MPI; if not, the reason says what to do.
bool has_mpi();
const std::string& no_mpi_reason();

// Starts MPI, which this process finishes at exit, and meets the other ranks. All ranks of
// MPI_COMM_WORLD must call it equally often. Its description() is "mpi: Open MPI v4.1.4".
// Throws Error{Comm} if this build has no MPI, or MPI does not start; Error{Usage} if rank and
//        world size differ from MPI's, naming who started this process and the library: another
//        library's mpirun did, or none.
// Ends the process if not all ranks come in time.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options);

}  // namespace lockstep::comm
