#include "kernels/cuda/product_key.h"

#include "kernels/cuda/alignment.h"
#include "kernels/cuda/product_description.h"

namespace lockstep::kernels::cuda {

ProductKey key_of(const Product& product) {
  const auto number = [](auto value) { return static_cast<std::int64_t>(value); };
  const auto stride = [&](const ConstMatrixView& view) {
    return number(view.batch == 1 ? 0 : view.batch_stride);
  };
  const void* vector = product.finish == Product::Finish::bias_gradient ? product.column_sums.data
                                                                        : product.bias.data;
  const ConstMatrixView auxiliary = product.finish == Product::Finish::gradient
                                        ? product.saved
                                        : ConstMatrixView(product.preactivation);
  const std::int64_t alignments = alignment_of(product.a) | alignment_of(product.b) << 8 |
                                  alignment_of(product.c) << 16 | alignment_of(vector) << 24;
  return {number(types_of(product).compute),
          number(product.transpose_a == Transpose::yes),
          number(product.transpose_b == Transpose::yes),
          number(product.c.rows),
          number(product.c.cols),
          number(inner_size(product)),
          number(product.c.batch),
          number(product.a.leading_dimension),
          number(product.b.leading_dimension),
          number(product.c.leading_dimension),
          stride(product.a),
          stride(product.b),
          stride(product.c),
          number(product.write),
          number(product.finish),
          number(product.activation),
          number(vector != nullptr),
          number(product.mask_use) | number(product.saved_mask.data != nullptr) << 8,
          number(auxiliary.data != nullptr ? auxiliary.leading_dimension : 0),
          number(alignment_of(auxiliary)),
          alignments};
}

}  // namespace lockstep::kernels::cuda
