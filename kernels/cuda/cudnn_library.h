// cuDNN's functions, loaded when the first convolution asks for them, so that programs start and do
// everything else on a machine without cuDNN.
#pragma once

#include <cudnn.h>

#include <string>
#include <string_view>

namespace lockstep::kernels::cuda {

// clang-format off
#define LOCKSTEP_CUDNN_FUNCTIONS(DO) \
  DO(cudnnGetErrorString) DO(cudnnCreate) DO(cudnnDestroy) DO(cudnnSetStream) \
  DO(cudnnCreateTensorDescriptor) DO(cudnnSetTensor4dDescriptor) DO(cudnnDestroyTensorDescriptor) \
  DO(cudnnCreateFilterDescriptor) DO(cudnnSetFilter4dDescriptor) DO(cudnnDestroyFilterDescriptor) \
  DO(cudnnCreateConvolutionDescriptor) DO(cudnnSetConvolution2dDescriptor) \
  DO(cudnnSetConvolutionMathType) DO(cudnnDestroyConvolutionDescriptor) \
  DO(cudnnGetConvolutionForwardAlgorithm_v7) DO(cudnnGetConvolutionForwardWorkspaceSize) \
  DO(cudnnGetConvolutionBackwardDataAlgorithm_v7) \
  DO(cudnnGetConvolutionBackwardDataWorkspaceSize) \
  DO(cudnnGetConvolutionBackwardFilterAlgorithm_v7) \
  DO(cudnnGetConvolutionBackwardFilterWorkspaceSize) \
  DO(cudnnConvolutionForward) DO(cudnnConvolutionBackwardData) DO(cudnnConvolutionBackwardFilter)
// clang-format on

struct CudnnLibrary {
  decltype(&::cudnnGetProperty) cudnnGetProperty = nullptr;  // which every version has
#define LOCKSTEP_DECLARE(name) decltype(&::name) name = nullptr;
  LOCKSTEP_CUDNN_FUNCTIONS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE
  std::string problem;  // empty if it is loaded; else the loader's words
};

// Loads the file that LOCKSTEP_CUDNN_LIBRARY names; otherwise where the loader finds it, then where
// it was when this was built. A function that it lacks stays null. An emulated GPU
// (tests/emulated_gpu/cudnn) has its own library instead.
CudnnLibrary load_cudnn();

// The library that this process convolves by, or why it has none: it is absent, LOCKSTEP_CUDNN is
// off, or its major version is not that of the headers. Decided at the first call.
struct CudnnChoice {
  CudnnLibrary library;
  std::string version;  // "9.28.1"
  std::string problem;  // empty: cuDNN is used
};
const CudnnChoice& cudnn_choice();
// From now on there is none. A warning says why.
void give_up_cudnn(std::string why);
// For tests.
void choose_cudnn_anew();

inline const CudnnLibrary& cudnn() {
  return cudnn_choice().library;
}

// Throws Error{Cuda}, with the library's words, unless the status is success.
void check_cudnn(cudnnStatus_t status, std::string_view call);

// CUDNN(cudnnSetStream, handle, stream): calls the function, which must succeed.
#define CUDNN(name, ...) check_cudnn(cudnn().name(__VA_ARGS__), #name)

}  // namespace lockstep::kernels::cuda
