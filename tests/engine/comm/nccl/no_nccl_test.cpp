// A build without NCCL says so when it is asked for NCCL.
#include "engine/comm/nccl/nccl_group.h"
#include "tests/support/expect_error.h"

namespace lockstep::comm {
namespace {

TEST(NoNccl, SaysHowToGetItAndWhatWorksWithoutIt) {
  EXPECT_FALSE(has_nccl());
  lockstep::testing::expect_error(ErrorCode::Comm, "built without NCCL",
                                  [] { make_nccl_communicator({}); });
  EXPECT_THAT(no_nccl_reason(), ::testing::HasSubstr("-DNCCL_ROOT="));
  EXPECT_THAT(no_nccl_reason(), ::testing::HasSubstr("use the engine's own communicator"));
}

}  // namespace
}  // namespace lockstep::comm
