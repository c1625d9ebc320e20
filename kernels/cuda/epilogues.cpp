#include "kernels/cuda/epilogues.h"

#include <cstdlib>
#include <string_view>

#include "engine/core/error.h"
#include "kernels/cuda/alignment.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr std::int64_t kMaskBits = 128;      // a row of a ReLU mask begins at multiples of it
constexpr std::size_t kGeluAuxElements = 8;  // a row of saved GELU inputs, likewise

// GELU's saved inputs lie as the library wants them.
bool fits_gelu_epilogue(const ConstMatrixView& saved) {
  return saved.leading_dimension % kGeluAuxElements == 0 && alignment_of(saved.data) == 16;
}

// The library's kernels take a bias, or its gradient, 16 bytes at a time. Unlike a matrix's, its
// alignment is nothing that the heuristics are told, and a misaligned access ends the GPU's
// context.
bool fits_bias_epilogue(const ConstTensorView& vector) {
  return alignment_of(vector.data) == 16;  // true where there is none
}

enum class Allowed { all, forward, off };

// Read again for every product that is new; nobody asks for it otherwise.
Allowed allowed_by_environment() {
  const char* text = std::getenv("LOCKSTEP_EPILOGUES");
  const std::string_view word = text ? text : "";
  if (word.empty() || word == "all") return Allowed::all;
  if (word == "forward") return Allowed::forward;
  require(word == "off", ErrorCode::Usage, "LOCKSTEP_EPILOGUES", "is '{}'; use all, forward or off",
          word);
  return Allowed::off;
}

void add_forward(std::vector<cublasLtEpilogue_t>& result, const Product& product, Allowed allowed) {
  const bool has_bias = product.bias.data != nullptr;
  const bool keeps = product.preactivation.data != nullptr;
  if (!fits_bias_epilogue(product.bias)) return;
  if (product.activation == Activation::none && has_bias && !keeps) {
    result.push_back(CUBLASLT_EPILOGUE_BIAS);
  } else if (product.activation == Activation::relu && !keeps) {
    // Only the backward pass reads the mask.
    if (product.mask_use != Product::Mask::none && allowed == Allowed::all) {
      result.push_back(has_bias ? CUBLASLT_EPILOGUE_RELU_AUX_BIAS : CUBLASLT_EPILOGUE_RELU_AUX);
    }
    if (product.mask_use != Product::Mask::written) {
      result.push_back(has_bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU);
    }
  } else if (product.activation == Activation::gelu_tanh) {
    if (!keeps) {
      result.push_back(has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
    } else if (fits_gelu_epilogue(product.preactivation)) {
      result.push_back(has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX);
    }
  }
}

void add_gradient(std::vector<cublasLtEpilogue_t>& result, const Product& product) {
  const bool is_summed = product.finish == Product::Finish::gradient_sums &&
                         product.write == Write::overwrite &&
                         fits_bias_epilogue(product.column_sums);
  if (product.activation == Activation::relu && product.saved_mask.data != nullptr) {
    if (is_summed) result.push_back(CUBLASLT_EPILOGUE_DRELU_BGRAD);
    result.push_back(CUBLASLT_EPILOGUE_DRELU);
  } else if (product.activation == Activation::gelu_tanh && fits_gelu_epilogue(product.saved)) {
    if (is_summed) result.push_back(CUBLASLT_EPILOGUE_DGELU_BGRAD);
    result.push_back(CUBLASLT_EPILOGUE_DGELU);
  }
}

void add_bias_gradient(std::vector<cublasLtEpilogue_t>& result, const Product& product) {
  // It overwrites; a gradient that is added to is summed by a kernel of ours.
  if (product.write == Write::overwrite && fits_bias_epilogue(product.column_sums)) {
    result.push_back(CUBLASLT_EPILOGUE_BGRADB);
  }
}

}  // namespace

std::vector<cublasLtEpilogue_t> epilogues_for(const Product& product) {
  std::vector<cublasLtEpilogue_t> result;
  // cuBLASLt has no gradient epilogues for an inner size of 1.
  const Allowed allowed = allowed_by_environment();
  const bool has_gradients = inner_size(product) > 1 && allowed == Allowed::all;
  if (product.c.dtype == DType::float32 && allowed != Allowed::off) {
    switch (product.finish) {
      case Product::Finish::none:
        break;
      case Product::Finish::forward:
        add_forward(result, product, allowed);
        break;
      case Product::Finish::gradient:
      case Product::Finish::gradient_sums:
        if (has_gradients) add_gradient(result, product);
        break;
      case Product::Finish::bias_gradient:
        if (has_gradients) add_bias_gradient(result, product);
        break;
    }
  }
  if (product.mask_use != Product::Mask::written) result.push_back(CUBLASLT_EPILOGUE_DEFAULT);
  return result;
}

bool has_gradient_sums(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}

bool has_derivative(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU || epilogue == CUBLASLT_EPILOGUE_DGELU ||
         has_gradient_sums(epilogue);
}

bool does_all(cublasLtEpilogue_t epilogue, const Product& product) {
  if (product.finish == Product::Finish::gradient_sums) return has_gradient_sums(epilogue);
  return epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

bool writes_relu_mask(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_RELU_AUX || epilogue == CUBLASLT_EPILOGUE_RELU_AUX_BIAS;
}

bool reads_relu_mask(cublasLtEpilogue_t epilogue) {
  return epilogue == CUBLASLT_EPILOGUE_DRELU || epilogue == CUBLASLT_EPILOGUE_DRELU_BGRAD;
}

std::int64_t mask_leading_dimension(std::size_t cols) {
  const auto bits = static_cast<std::int64_t>(cols);
  return (bits + kMaskBits - 1) / kMaskBits * kMaskBits;
}

std::size_t relu_mask_bytes(std::size_t rows, std::size_t cols) {
  return rows * static_cast<std::size_t>(mask_leading_dimension(cols)) / 8;
}

}  // namespace lockstep::kernels::cuda
