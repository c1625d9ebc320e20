#include "tutorials/rows.h"

#include <algorithm>

#include "datasets/digits.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::tutorial {

Rows Rows::part(int begin, int end, Device device) const {
  return {x.rows(begin, end).to(device), labels.rows(begin, end).to(device)};
}

Rows Rows::shard(int rank, int num_ranks, Device device) const {
  const plan::Chunk rows = plan::even_chunk(x.size(0), num_ranks, rank);
  return {x.rows(rows.offset, rows.end()).to(device),
          labels.rows(rows.offset, rows.end()).to(device)};
}

int Rows::steps_per_epoch(int batch_size) const {
  return (count() + batch_size - 1) / batch_size;
}

Rows Rows::batch(int step, int batch_size) const {
  const int begin = step % steps_per_epoch(batch_size) * batch_size;
  return part(begin, std::min(begin + batch_size, count()));
}

Rows load_digits(Device device) {
  const data::LabelledTensors train = datasets::load_digits().train;
  return {train.x.to(device), train.labels.to(device)};
}

}  // namespace lockstep::tutorial
