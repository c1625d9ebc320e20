#include "engine/core/shape.h"
#include "engine/plan/buckets.h"
#include "engine/plan/scatter.h"
#include "tests/hostile/interface/misuse.h"

namespace lockstep::testing {
namespace {

// Sizes whose product does not fit 63 bits, perhaps with a 0 among them that would hide it.
std::vector<std::size_t> wrapping_sizes(Rng& rng) {
  const std::size_t bits = between(rng, 1, 62);
  std::vector<std::size_t> sizes{(std::size_t{1} << bits) + rng.below(2),
                                 (std::size_t{1} << (63 - bits)) + rng.below(2)};
  if (rng.below(2) == 0) sizes.insert(sizes.begin() + std::ptrdiff_t(rng.below(3)), 0);
  return sizes;
}

// Too many bytes, though not too many elements, of an 8-byte type.
std::size_t huge_size(Rng& rng) {
  return (std::size_t{1} << 60) + rng.below(std::size_t{1} << 60);
}

// What an undefined tensor refuses.
void use_undefined(Rng& rng) {
  const Tensor none;
  const std::vector<std::function<void()>> uses{
      [&] { none.device(); },
      [&] { none.logical_device(); },
      [&] { none.stream(); },
      [&] { none.backend(); },
      [&] { none.raw(); },
      [&] { none.view(); },
      [&] { none.matrix(); },
      [&] { none.host<float>(); },
      [&] { none.host<const float>(); },
      [&] { none.version(); },
      [&] { none.bump_version(); },
      [&] { none.rows(0, 0); },
      [&] { none.reshape({0}); },
      [&] { none.slice(0, {0}); },
      [&] { none.clone(); },
      [&] { none.to(Device{}); },
      [&] { none.to(DType::float32); },
      [&] { none.to(DType::float64); },
      [&] { none.copy_from(Tensor::zeros({})); },
      [&] { Tensor::zeros({}).copy_from(none); },
      [&] { none.fill(1); },
      [&] { none.item(); },
      [&] { none.to_vector<double>(); },
  };
  one_of(rng, uses)();
}

void make_out_of_range(Rng& rng, const Shape& shape, DType dtype) {
  switch (rng.below(5)) {
    case 0:
      Tensor::empty(shape, dtype);
      break;
    case 1:
      Tensor::zeros(shape, dtype);
      break;
    case 2:
      Tensor::empty_pinned(shape, dtype);
      break;
    case 3:
      Tensor::uniform(shape, 0, 1, rng, dtype);
      break;
    default:
      Tensor::normal(shape, 0, 1, rng, dtype);
  }
}

void rows_outside(Rng& rng) {
  const Tensor tensor = Tensor::zeros(random_shape(rng));
  const std::size_t num_rows = tensor.num_dims() == 0 ? 0 : tensor.size(0);
  const std::size_t far = one_of<std::size_t>(rng, {num_rows + 1, huge_size(rng), ~std::size_t{0}});
  if (rng.below(2) == 0) {
    tensor.rows(rng.below(num_rows + 1), far);
  } else {
    tensor.rows(far, num_rows);
  }
}

void slice_outside(Rng& rng) {
  const Tensor tensor = Tensor::zeros(random_shape(rng));
  const std::size_t size = tensor.num_elements();
  switch (rng.below(3)) {
    case 0:
      tensor.slice(size, {between(rng, 1, 9)});
      break;
    case 1:
      tensor.slice(~std::size_t{0} - rng.below(4), random_shape(rng));
      break;
    default:
      tensor.slice(1, {size + rng.below(kMaxSize - size)});
  }
}

void copy_unlike(Rng& rng) {
  const Shape shape = random_shape(rng);
  const Tensor to = Tensor::zeros(shape);
  if (rng.below(2) == 0) {
    to.copy_from(Tensor::zeros(other_shape(rng, shape)));
  } else {
    to.copy_from(Tensor::zeros(shape, random_integer(rng)));
  }
}

}  // namespace

Misuses tensor_misuses() {
  return {
      {"a shape that wraps around", [](Rng& rng) { shape_of(wrapping_sizes(rng)); }},
      {"a shape of too many dimensions",
       [](Rng& rng) { shape_of(std::vector<std::size_t>(between(rng, 7, 30), 1)); }},
      {"a shape with a size that wraps around",
       [](Rng& rng) {
         const Shape shape{between(rng, 2, 9), between(rng, 1, 9)};
         shape.with(1, kMaxSize - rng.below(99));
       }},
      {"a dimension that is not there",
       [](Rng& rng) {
         const Shape shape = random_shape(rng);
         const std::size_t dim = shape.num_dims() + rng.below(9);
         rng.below(2) == 0 ? void(shape[dim]) : void(shape.with(dim, 1));
       }},
      {"bytes that wrap around",
       [](Rng& rng) {
         const Shape shape{huge_size(rng), rng.below(4)};
         make_out_of_range(rng, shape, one_of<DType>(rng, {DType::float64, DType::int64}));
       }},
      {"memory that no machine has",
       [](Rng& rng) {
         make_out_of_range(rng, {(std::size_t{1} << 55) + rng.below(1000)}, random_float(rng));
       }},
      {"values that are not as many as the shape says",
       [](Rng& rng) {
         const Shape shape = random_shape(rng);
         Tensor::from(std::vector<float>(other_shape(rng, shape).num_elements()), shape);
       }},
      {"a device that does not exist",
       [](Rng& rng) {
         const Device device = no_device(rng);
         const Tensor tensor = Tensor::zeros(random_shape(rng));
         switch (rng.below(4)) {
           case 0:
             tensor.to(device);
             break;
           case 1:
             Tensor::empty(tensor.shape(), DType::float32, device);
             break;
           case 2:
             set_default_device(device);
             break;
           default:
             Tensor::from(tensor.to_vector<float>(), tensor.shape(), device);
         }
       }},
      {"an undefined tensor", use_undefined},
      {"rows outside the tensor", rows_outside},
      {"a slice outside the tensor", slice_outside},
      {"a reshape to another number of elements",
       [](Rng& rng) {
         const Shape shape = random_shape(rng);
         Tensor::zeros(shape).reshape(other_shape(rng, shape));
       }},
      {"a copy between unlike tensors", copy_unlike},
      {"host elements of another type",
       [](Rng& rng) { Tensor::zeros(random_shape(rng), random_integer(rng)).host<float>(); }},
      {"the one element of several",
       [](Rng& rng) {
         Tensor::zeros({between(rng, 2, 5), between(rng, 1, 5)}).item();
       }},
      {"the name of no device", [](Rng& rng) { parse_device(garbage(rng)); }},
      {"the name of no type", [](Rng& rng) { parse_dtype(garbage(rng)); }},
      {"a number below 0", [](Rng& rng) { Rng(rng.next_word()).below(0); }},
      {"a permutation that wraps around", [](Rng& rng) { random_permutation(huge_size(rng), 0); }},
      {"buckets that wrap around",
       [](Rng& rng) {
         const std::vector<plan::BucketParameter> sizes{{huge_size(rng), DType::float64, {}},
                                                        {between(rng, 1, 99), DType::float64, {}}};
         plan::bucket_plan(sizes, plan::reverse_order(2));
       }},
      {"parts whose sum wraps around",
       [](Rng& rng) {
         const std::size_t half = std::size_t{1} << 63;
         const std::size_t rest = between(rng, 1, 9);
         plan::scatter_plan_with_sizes(rest, std::vector<std::size_t>{half, half, rest});
       }},
  };
}

}  // namespace lockstep::testing
