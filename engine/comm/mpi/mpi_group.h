// The communicator whose collectives are those of an MPI library, for ranks that mpirun or srun
// started. Read comm/communicator.h first; here is what differs.
//
// How a call runs: the ranks first compare what each of them called (by a nonblocking all-reduce of
// a few words), then the library's own blocking collective moves the data. Comparing is what makes
// the promises of communicator.h true with MPI, which has no deadlines: a rank that does not
// come, or calls something else, is found while every wait can still be given up.
//
// Devices: CPU tensors.
// Types:   bfloat16 and float16 are moved but not reduced: MPI knows neither.
// Results: as the library makes them; min and max need not keep a NaN.
// Plans:   the library chooses its algorithms; an all_reduce that names one is Error{Usage}.
// Failure: MPI cannot go on after a lost rank. After an error this process ends without
//          MPI_Finalize, and mpirun or srun then ends the others. A rank that stands still after
//          all have met leaves the others inside the library, where no deadline reaches them: when
//          the time is over they print the error as one line and call MPI_Abort.
// Threads: needs MPI_THREAD_SERIALIZED: one thread at a time is inside the library.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/communicator.h"

namespace lockstep::comm {

struct MpiGroupOptions {
  // What this process believes; checked against what MPI says.
  int rank = 0;
  int world_size = 1;
  double timeout_seconds = 30;  // to meet, and of the communicator
  std::string started_by;       // who gave this process its rank, for errors: "mpirun (Open MPI)"
};

// Whether this build has MPI, and if not, why and what to do.
bool has_mpi();
const std::string& no_mpi_reason();

// Starts MPI, which this process finishes when it exits, and meets the other ranks. All ranks of
// MPI_COMM_WORLD must call it, equally often. Its description() is "mpi: Open MPI v4.1.4".
// Throws Error{Comm} when this build has no MPI, or MPI does not start;
//        Error{Usage} when rank and world size are not MPI's, naming who started this process and
//        the library: another library's mpirun did, or none;
//        Error{Timeout} when not all ranks came.
std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions& options);

}  // namespace lockstep::comm
