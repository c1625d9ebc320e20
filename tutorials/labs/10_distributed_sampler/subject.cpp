#include <cstddef>

#include "distributed_sampler.h"
#include "tutorials/labs/host/subject.h"

// inputs: {"samples", "ranks", "seed", "epoch", "shuffle", "drop_last"}. answer: the rows by rank.
extern "C" void lab_subject(const nlohmann::json& inputs, nlohmann::json& answer) {
  lab::Epoch epoch{
      inputs.at("samples"), inputs.at("ranks"), inputs.at("seed"), inputs.at("epoch"), {}, {}};
  epoch.shuffle = inputs.at("shuffle") ? lab::Shuffle::yes : lab::Shuffle::no;
  epoch.drop_last = inputs.at("drop_last") ? lab::DropLast::yes : lab::DropLast::no;
  answer = nlohmann::json::array();
  for (std::size_t rank = 0; rank < epoch.world_size; ++rank) {
    answer.push_back(lab::distributed_sampler(epoch, rank));
  }
}
