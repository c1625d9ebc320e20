// Handles, descriptors, and the problem that descriptors describe together.
#include <climits>

#include "tests/emulated_gpu/cudnn/context.h"
#include "tests/emulated_gpu/cudnn/problem.h"
#include "tests/emulated_gpu/runtime.h"

using namespace emulated_gpu;
using namespace emulated_gpu::cudnn;

namespace emulated_gpu::cudnn {
namespace {

Wishes& current_wishes() {
  static Wishes& instance = *new Wishes;
  return instance;
}

bool is_known(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
         type == CUDNN_DATA_BFLOAT16;
}

cudnnStatus_t set(cudnnTensorStruct* tensor, cudnnTensorFormat_t format, cudnnDataType_t type,
                  int n, int c, int h, int w) {
  if (tensor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (n < 1 || c < 1 || h < 1 || w < 1 || !is_known(type)) return CUDNN_STATUS_BAD_PARAM;
  if (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_BAD_PARAM;
  cudnnTensorStruct made;
  made.format = format;
  made.type = type;
  made.n = n;
  made.c = c;
  made.h = h;
  made.w = w;
  // "exceeds the maximum limit of 2 Giga-elements"
  if (num_elements(made) > std::size_t{INT_MAX}) return CUDNN_STATUS_NOT_SUPPORTED;
  *tensor = made;
  return CUDNN_STATUS_SUCCESS;
}

template <typename Object>
cudnnStatus_t create(Object** handle) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *handle = new Object;
  return CUDNN_STATUS_SUCCESS;
}

template <typename Object>
cudnnStatus_t destroy(Object* handle) {
  delete handle;
  return CUDNN_STATUS_SUCCESS;
}

int out_size(int size, int padding, int kernel, int stride) {
  return (size + 2 * padding - kernel) / stride + 1;
}

bool fits_together(const Problem& problem) {
  const auto& [x, y, filter, convolution] = problem;
  if (x.n != y.n || x.c != filter.c || y.c != filter.n) return false;
  if (filter.h > x.h + 2 * convolution.pad_h || filter.w > x.w + 2 * convolution.pad_w)
    return false;
  return y.h == out_size(x.h, convolution.pad_h, filter.h, convolution.stride_h) &&
         y.w == out_size(x.w, convolution.pad_w, filter.w, convolution.stride_w);
}

}  // namespace

void wish(const Wishes& wishes) {
  current_wishes() = wishes;
}

const Wishes& wishes() {
  return current_wishes();
}

std::size_t num_elements(const cudnnTensorStruct& tensor) {
  const auto size = [](int value) { return static_cast<std::size_t>(value); };
  return size(tensor.n) * size(tensor.c) * size(tensor.h) * size(tensor.w);
}

std::size_t num_bytes(const cudnnTensorStruct& tensor) {
  return num_elements(tensor) * (tensor.type == CUDNN_DATA_FLOAT ? 4 : 2);
}

cudnnStatus_t check_problem(const Problem& problem) {
  const auto& [x, y, filter, convolution] = problem;
  if (x.n == 0 || y.n == 0 || filter.n == 0 || convolution.stride_h == 0) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  if (x.type != y.type || x.type != filter.type) return CUDNN_STATUS_BAD_PARAM;
  if (!fits_together(problem)) return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  for (const cudnnTensorStruct* tensor : {&x, &y, static_cast<const cudnnTensorStruct*>(&filter)}) {
    if (tensor->format != CUDNN_TENSOR_NHWC) return CUDNN_STATUS_NOT_SUPPORTED_LAYOUT;
  }
  // FLOAT_CONFIG and PSEUDO_BFLOAT16_CONFIG of the documentation.
  const bool is_half = x.type == CUDNN_DATA_BFLOAT16;
  if (convolution.compute_type != CUDNN_DATA_FLOAT || (x.type != CUDNN_DATA_FLOAT && !is_half)) {
    return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  }
  // bfloat16 is multiplied by tensor cores alone.
  if (is_half && convolution.math == CUDNN_FMA_MATH) return CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  if (convolution.math == CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION) return CUDNN_STATUS_NOT_SUPPORTED;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace emulated_gpu::cudnn

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  if (value == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  *value = type == MAJOR_VERSION ? wishes().major : type == MINOR_VERSION ? CUDNN_MINOR : 0;
  return CUDNN_STATUS_SUCCESS;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "success" : "a status of the emulated cuDNN";
}

// A handle belongs to the GPU that is current when it is made, and its memory cannot be captured.
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (wishes().creating != CUDNN_STATUS_SUCCESS) return wishes().creating;
  {
    const std::lock_guard lock(state().mutex);
    if (check_call_is_safe() != cudaSuccess) return CUDNN_STATUS_NOT_INITIALIZED;
  }
  *handle = new cudnnContext{current_gpu()};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return destroy(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  const std::lock_guard lock(state().mutex);
  const auto found = find_stream(stream);
  if (!found || found->gpu != handle->gpu) return CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t format, cudnnDataType_t type, int n,
                                         int c, int h, int w) {
  return set(descriptor, format, type, n, c, h, w);
}
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return destroy(descriptor);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
  return set(descriptor, format, type, k, c, h, w);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return destroy(descriptor);
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  return create(descriptor);
}
cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor, int pad_h,
                                              int pad_w, int u, int v, int dilation_h,
                                              int dilation_w, cudnnConvolutionMode_t mode,
                                              cudnnDataType_t compute_type) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (pad_h < 0 || pad_w < 0 || u < 1 || v < 1 || dilation_h < 1 || dilation_w < 1) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  // This project needs neither.
  if (mode != CUDNN_CROSS_CORRELATION || dilation_h != 1 || dilation_w != 1) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  descriptor->pad_h = pad_h;
  descriptor->pad_w = pad_w;
  descriptor->stride_h = u;
  descriptor->stride_w = v;
  descriptor->compute_type = compute_type;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t type) {
  if (descriptor == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
  if (type < CUDNN_DEFAULT_MATH || type > CUDNN_FMA_MATH) return CUDNN_STATUS_BAD_PARAM;
  if (wishes().describing != CUDNN_STATUS_SUCCESS) return wishes().describing;
  descriptor->math = type;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return destroy(descriptor);
}
