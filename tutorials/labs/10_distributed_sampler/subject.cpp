#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "distributed_sampler.h"
#include "tutorials/labs/host/subject.h"

// inputs: {"samples", "ranks", "seed", "epoch", "shuffle", "drop_last"} and perhaps "call": one of
// the functions. answer: the rows by rank; the order, as if it were a rank's rows.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  lab::Epoch epoch{
      inputs.at("samples"), inputs.at("ranks"), inputs.at("seed"), inputs.at("epoch"), {}, {}};
  epoch.shuffle = inputs.at("shuffle") ? lab::Shuffle::yes : lab::Shuffle::no;
  epoch.drop_last = inputs.at("drop_last") ? lab::DropLast::yes : lab::DropLast::no;
  answer = nlohmann::json::array();
  const std::string call = inputs.value("call", "");
  if (call == "epoch_order") {
    answer.push_back(lab::epoch_order(epoch));
    return;
  }
  std::vector<std::size_t> order(epoch.num_samples);
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t rank = 0; rank < epoch.world_size; ++rank) {
    answer.push_back(call == "rows_of_rank" ? lab::rows_of_rank(order, epoch, rank)
                                            : lab::distributed_sampler(epoch, rank));
  }
}
