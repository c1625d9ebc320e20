// The communicator whose collectives are those of an MPI library, for ranks that mpirun or srun
// started. Read comm/communicator.h first; here is what differs.
//
// Calls:   the ranks first compare what each of them called, by an all-gather of a few words. Then
//          the library's own blocking collective moves the data.
// Devices: CPU tensors.
// Types:   bfloat16 and float16 are moved but not reduced: MPI does not know them.
// Results: as the library makes them; min and max need not keep a NaN.
// Plans:   the library chooses its algorithms; an all_reduce that names one is Error{Usage}.
// Messages: a size or dtype that differs is an error of the receiver. Large messages move only
//          while the sender is in some call of its communicator.
// Failure: no call into MPI can be interrupted. When the time limit of a call, or of MPI_Init, is
//          over, this process prints one line that names what it waits for, and ends with exit code
//          1. After an error it ends without MPI_Finalize. mpirun or srun then ends the other
//          ranks.
// Threads: needs MPI_THREAD_MULTIPLE.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

struct MpiGroupOptions {
  // Checked against MPI's own.
  int rank = 0;
  int world_size = 1;
  double timeout_seconds = 30;  // to meet, and of the communicator
  std::string started_by;       // who gave this process its rank, for errors: "mpirun (Open MPI)"
};

// Says whether this build has MPI; if it has not, the reason says what to do.
bool has_mpi();
const std::string& no_mpi_reason();

// Starts MPI, which this process finishes when it exits, and meets the other ranks. All ranks of
// MPI_COMM_WORLD must call it, equally often. Its description() is "mpi: Open MPI v4.1.4".
// Throws Error{Comm} when this build has no MPI, or MPI does not start;
//        Error{Usage} when rank and world size are not MPI's, naming who started this process and
//        the library: another library's mpirun did, or none.
// Ends the process when not all ranks come in time.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options);

}  // namespace lockstep::comm
