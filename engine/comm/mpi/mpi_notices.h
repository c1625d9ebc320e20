// What ranks of an MPI group tell each other outside their collectives: one last message from each
// rank to every other.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep::comm {

struct MpiNotice {
  enum class Kind : std::int32_t {
    left,    // it destroyed its communicator after num_collectives calls
    late,    // the time of the call in `text` is over
    failed,  // the group is broken; text: its error (error_bytes.h)
  };
  Kind kind = Kind::left;
  std::uint32_t num_text_bytes = 0;
  std::uint64_t num_collectives = 0;
  std::array<char, 1008> text_bytes{};

  std::string_view text() const {
    return {text_bytes.data(), std::min<std::size_t>(num_text_bytes, text_bytes.size())};
  }
};

// REQUIRES: every method's caller holds the session's mutex.
class MpiNotices {
 public:
  // A communicator of the group's own for these messages, which is freed with this.
  explicit MpiNotices(MPI_Comm communicator);
  ~MpiNotices();
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  // To all other ranks; only the first one is sent.
  void send(const MpiNotice& notice, std::string_view text);
  // Takes in what has come.
  void poll();
  // By rank; nothing of ranks that have not spoken.
  const std::vector<std::optional<MpiNotice>>& received() const { return received_; }
  bool have_all_come() const { return num_received_ + 1 == received_.size(); }

 private:
  MPI_Comm communicator_;
  int rank_ = 0;
  std::shared_ptr<MpiNotice> sent_;
  std::vector<MPI_Request> requests_;  // of sending; empty before
  std::vector<std::optional<MpiNotice>> received_;
  std::size_t num_received_ = 0;
};

}  // namespace lockstep::comm
