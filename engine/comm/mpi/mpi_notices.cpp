#include "engine/comm/mpi/mpi_notices.h"

#include "engine/comm/mpi/mpi_session.h"

namespace lockstep::comm {
namespace {

constexpr int kTag = 0;
constexpr int kNoticeBytes = sizeof(MpiNotice);

}  // namespace

MpiNotices::MpiNotices(MPI_Comm communicator)
    : communicator_(communicator), sent_(std::make_shared<MpiNotice>()) {
  int num_ranks = 0;
  MPI_CHECK(MPI_Comm_size(communicator_, &num_ranks));
  MPI_CHECK(MPI_Comm_rank(communicator_, &rank_));
  received_.resize(static_cast<std::size_t>(num_ranks));
}

// Whoever has heard from all, and was heard by all, may free the communicator: it is pending
// nowhere. Else it stays, as the process is about to end.
MpiNotices::~MpiNotices() {
  int are_sent = 0;
  MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &are_sent, MPI_STATUSES_IGNORE);
  if (are_sent != 0 && have_all_come()) {
    MPI_Comm_free(&communicator_);
  } else {
    MpiSession::keep(sent_);
  }
}

void MpiNotices::send(const MpiNotice& notice, std::string_view text) {
  if (!requests_.empty()) return;
  *sent_ = notice;
  sent_->num_text_bytes =
      static_cast<std::uint32_t>(text.copy(sent_->text_bytes.data(), sent_->text_bytes.size()));
  for (int peer = 0; peer < static_cast<int>(received_.size()); ++peer) {
    if (peer == rank_) continue;
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    MPI_CHECK(MPI_Isend(sent_.get(), kNoticeBytes, MPI_BYTE, peer, kTag, communicator_, &request));
  }
}

void MpiNotices::poll() {
  while (!have_all_come()) {
    int is_there = 0;
    MPI_Status status;
    MPI_CHECK(MPI_Iprobe(MPI_ANY_SOURCE, kTag, communicator_, &is_there, &status));
    if (is_there == 0) return;
    MpiNotice notice;
    MPI_CHECK(MPI_Recv(&notice, kNoticeBytes, MPI_BYTE, status.MPI_SOURCE, kTag, communicator_,
                       MPI_STATUS_IGNORE));
    received_[static_cast<std::size_t>(status.MPI_SOURCE)] = notice;
    ++num_received_;
  }
}

}  // namespace lockstep::comm
