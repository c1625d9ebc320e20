#include "tutorials/rows.h"

#include <algorithm>

#include "datasets/digits.h"
#include "engine/plan/collective_plan.h"

namespace lockstep::tutorial {

Rows Rows::part(std::size_t begin, std::size_t end, Device device) const {
  return {x.rows(begin, end).to(device), labels.rows(begin, end).to(device)};
}

Rows Rows::shard(std::size_t rank, std::size_t num_ranks, Device device) const {
  const plan::Chunk rows = plan::even_chunk(count(), num_ranks, rank);
  return part(rows.offset, rows.end(), device);
}

std::size_t Rows::steps_per_epoch(std::size_t batch_size) const {
  return (count() + batch_size - 1) / batch_size;
}

Rows Rows::batch(std::size_t step, std::size_t batch_size) const {
  const std::size_t begin = step % steps_per_epoch(batch_size) * batch_size;
  return part(begin, std::min(begin + batch_size, count()));
}

Rows load_digits(Device device) {
  const data::LabelledTensors train = datasets::load_digits().train;
  return {train.x.to(device), train.labels.to(device)};
}

}  // namespace lockstep::tutorial
