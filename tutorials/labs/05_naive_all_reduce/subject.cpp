#include "tutorials/labs/host/subject.h"

#include <cstddef>
#include <vector>

#include "naive_all_reduce.h"
#include "tutorials/labs/host/group.h"

namespace {

// Ranks as the lab asks for them, to stand in for those that a check is not about.
void stand_in(lab::Rank& rank, std::span<double> buffer) {
  if (rank.rank() != 0) {
    rank.send(buffer, 0);
    rank.recv(buffer, 0);
    return;
  }
  std::vector<double> other(buffer.size());
  for (int peer = 1; peer < rank.world_size(); ++peer) {
    rank.recv(other, peer);
    for (std::size_t i = 0; i < buffer.size(); ++i) buffer[i] += other[i];
  }
  for (int peer = 1; peer < rank.world_size(); ++peer) rank.send(buffer, peer);
}

}  // namespace

// inputs: {"buffers"} and perhaps "call": "rank_0" or "others", the ranks that run the submission.
// answer: as run_group.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  const std::string call = inputs.value("call", "");
  answer = lab::run_group(inputs, [&](lab::Rank& rank, std::span<double> buffer) {
    const bool is_asked = call.empty() || (call == "rank_0") == (rank.rank() == 0);
    (is_asked ? lab::naive_all_reduce : stand_in)(rank, buffer);
  });
}
