#include "engine/data/labelled_rows.h"

#include <algorithm>
#include <cstring>

#include "engine/core/error.h"

namespace lockstep::data {

namespace {

// Copies rows of a tensor in the CPU's memory to a device.
Tensor take_rows(const Tensor& from, const std::vector<std::size_t>& rows, Device device) {
  const std::size_t num_bytes = from.shape().row_elements() * size_of(from.dtype());
  const Device cpu = device.type == DeviceType::cpu ? device : Device{};
  const Tensor taken = Tensor::empty(from.shape().with(0, rows.size()), from.dtype(), cpu);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    require(rows[i] < from.size(0), ErrorCode::Usage, "take", "there is no row {}, only {} rows",
            rows[i], from.size(0));
    std::memcpy(static_cast<std::byte*>(taken.raw()) + i * num_bytes,
                static_cast<const std::byte*>(from.raw()) + rows[i] * num_bytes, num_bytes);
  }
  return taken.to(device);
}

}  // namespace

Shape LabelledRows::image_shape() const {
  if (row_shape.num_dims() == 2) return {row_shape[0], row_shape[1], 1};
  return row_shape.num_dims() == 3 ? row_shape : Shape();
}

void LabelledRows::write_row(std::size_t index, void* bytes, std::int64_t* labels_of_row) const {
  if (!is_text()) {
    std::memcpy(bytes, row(index).data(), num_features);
    *labels_of_row = labels[index];
    return;
  }
  const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(index);
  std::copy_n(first, num_features, static_cast<std::int64_t*>(bytes));
  std::copy_n(first + 1, num_features, labels_of_row);
}

LabelledTensors LabelledTensors::take(const std::vector<std::size_t>& rows, Device device) const {
  for (const Tensor* tensor : {&x, &labels}) {
    require(tensor->device().type == DeviceType::cpu, ErrorCode::Device, "take",
            "the data set is on {}, and rows can be taken from the CPU's memory only",
            to_string(tensor->device()));
  }
  return {take_rows(x, rows, device), take_rows(labels, rows, device)};
}

LabelledTensors to_tensors(const LabelledRows& rows) {
  std::vector<float> values;
  values.reserve(rows.features.size());
  for (const std::uint8_t byte : rows.features) {
    values.push_back(static_cast<float>(rows.scale * byte));
  }
  return {Tensor::from(values, {rows.num_rows(), rows.num_features}, Device{}),
          Tensor::from(rows.labels, {rows.num_rows()}, Device{})};
}

}  // namespace lockstep::data
