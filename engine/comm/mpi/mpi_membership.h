// A rank's place in an MPI group: how it meets the others with a deadline, and how it and they
// learn that the group is broken.
#pragma once

#include <memory>

#include "engine/comm/collective_call.h"
#include "engine/comm/comm_errors.h"
#include "engine/comm/mpi/mpi_notices.h"
#include "engine/comm/mpi/mpi_session.h"

namespace lockstep::comm {

class MpiMembership {
 public:
  // Meets all ranks of MPI_COMM_WORLD. Throws Error{Timeout} when they do not come.
  MpiMembership(MpiSession& session, double timeout_seconds);
  // Says good-bye, and waits a moment for the others to do so.
  ~MpiMembership();
  MpiMembership(const MpiMembership&) = delete;
  MpiMembership& operator=(const MpiMembership&) = delete;

  MpiSession& session() { return session_; }
  MPI_Comm communicator() const { return communicator_; }  // of the data

  // Returns when all ranks have come with this call. Throws Error{Comm} when they called different
  // things, and as await() does.
  void compare_calls(const CallHeader& mine, double timeout_seconds);

  // Returns when the request of this call is done. Throws Error{Timeout} that names the ranks that
  // are missing, or the error that broke the group.
  void await(MPI_Request& request, const CallHeader& call, double timeout_seconds);

  // Whether the request is done; does not wait.
  bool test(MPI_Request& request);

  // Throws the error that broke the group, if something did.
  void throw_if_failed(const CallHeader& call);
  bool has_failed() const { return failure_.is_set(); }

  // Breaks the group. The first error stays.
  void break_group(const Error& error);

  void count_collective() { ++num_collectives_; }

 private:
  struct Words;

  void duplicate(MPI_Comm& communicator, double timeout_seconds);
  void react(int peer, const MpiNotice& notice, const CallHeader& call);
  [[noreturn]] void conclude_late(const CallHeader& call, double timeout_seconds);
  void set_failure(const Error& error);
  [[noreturn]] void name_difference(const CallHeader& mine, double timeout_seconds);

  MpiSession& session_;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  std::unique_ptr<MpiNotices> notices_;
  std::shared_ptr<Words> words_;  // that ranks compare
  std::uint64_t num_collectives_ = 0;
  double timeout_seconds_ = 0;  // of the current call
  FirstFailure failure_;
};

}  // namespace lockstep::comm
