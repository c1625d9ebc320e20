#include "engine/comm/mpi/mpi_session.h"

#include <array>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// What comes first in "Open MPI v4.1.4, package: ..." or "MPICH Version:\t4.1\n...".
std::string short_name(std::string_view text) {
  std::string name;
  for (const char c : text.substr(0, text.find_first_of(",\n"))) name += c == '\t' ? ' ' : c;
  return name;
}

}  // namespace

void fail_mpi_call(const char* call, int result) {
  const std::string_view text(call);
  std::array<char, MPI_MAX_ERROR_STRING> words{};
  int length = 0;
  MPI_Error_string(result, words.data(), &length);
  fail(ErrorCode::Comm, text.substr(0, text.find('(')), "failed: {}", words.data());
}

MpiSession& MpiSession::get() {
  static MpiSession& session = *new MpiSession;  // never destroyed: finish() runs at exit
  return session;
}

MpiSession::MpiSession() {
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_CHECK(MPI_Initialized(&is_initialized));
  MPI_CHECK(MPI_Finalized(&is_finalized));
  require(is_finalized == 0, ErrorCode::Comm, "mpi", "MPI was finished already in this process");
  int level = MPI_THREAD_SINGLE;
  if (is_initialized == 0) {
    MPI_CHECK(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level));
    std::atexit(finish);
  } else {
    MPI_CHECK(MPI_Query_thread(&level));
  }
  require(level >= MPI_THREAD_SERIALIZED, ErrorCode::Comm, "mpi",
          "needs an MPI library that serves several threads (MPI_THREAD_SERIALIZED), found level "
          "{} of it; use another library, or --comm own",
          level);
  MPI_CHECK(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  MPI_CHECK(MPI_Comm_size(MPI_COMM_WORLD, &world_size_));
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
  int length = 0;
  MPI_CHECK(MPI_Get_library_version(version.data(), &length));
  library_ = short_name(version.data());
}

void MpiSession::finish() {
  if (!get().has_given_up_) MPI_Finalize();
}

void MpiSession::keep(std::shared_ptr<void> memory) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;  // never destroyed
  const std::lock_guard lock(mutex);
  kept.push_back(std::move(memory));
}

}  // namespace lockstep::comm
