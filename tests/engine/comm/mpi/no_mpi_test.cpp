// A build without MPI says so when it is asked for MPI.
#include "engine/comm/mpi/mpi_group.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

TEST(NoMpi, SaysHowToGetItAndWhatWorksWithoutIt) {
  EXPECT_FALSE(has_mpi());
  lockstep::testing::expect_error(ErrorCode::Comm, "built without MPI",
                                  [] { make_mpi_communicator({}); });
  EXPECT_THAT(no_mpi_reason(), ::testing::HasSubstr("libopenmpi-dev"));
  EXPECT_THAT(no_mpi_reason(), ::testing::HasSubstr("--comm own"));
}

}  // namespace
}  // namespace lockstep::comm
