// The functions of this folder in a build without MPI.
#include "engine/comm/mpi/mpi_group.h"
#include "engine/core/error.h"

namespace lockstep::comm {

bool has_mpi() {
  return false;
}

const std::string& no_mpi_reason() {
  static const std::string reason =
      "this program was built without MPI: install its development package (Debian and Ubuntu: "
      "libopenmpi-dev and openmpi-bin) and build again, or use --comm own, which needs no MPI";
  return reason;
}

std::unique_ptr<Communicator> make_mpi_communicator(const MpiGroupOptions&) {
  fail(ErrorCode::Comm, "mpi", "{}", no_mpi_reason());
}

}  // namespace lockstep::comm
