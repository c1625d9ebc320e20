// Calls that the emulated cuDNN refuses, as the real one does.
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <gtest/gtest.h>

#include <cstddef>

namespace {

// A convolution that is right unless a test spoils it: [2, 5, 6, 3] * [4, 3, 3], padding 1.
class EmulatedCudnn : public ::testing::Test {
 protected:
  static constexpr int kX[] = {2, 3, 5, 6}, kFilter[] = {4, 3, 3, 3}, kY[] = {2, 4, 5, 6};

  EmulatedCudnn() {
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    EXPECT_EQ(cudnnCreate(&handle), CUDNN_STATUS_SUCCESS);
    EXPECT_EQ(cudnnSetStream(handle, stream), CUDNN_STATUS_SUCCESS);
    cudnnCreateTensorDescriptor(&of_x);
    cudnnCreateTensorDescriptor(&of_y);
    cudnnCreateFilterDescriptor(&of_w);
    cudnnCreateConvolutionDescriptor(&convolution);
    describe(CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH);
    for (void** memory : {&x, &w, &y, &workspace}) cudaMalloc(memory, kBytes);
  }
  ~EmulatedCudnn() override {
    cudaStreamSynchronize(stream);
    for (void* memory : {x, w, y, workspace}) cudaFree(memory);
    cudnnDestroyConvolutionDescriptor(convolution);
    cudnnDestroyFilterDescriptor(of_w);
    cudnnDestroyTensorDescriptor(of_y);
    cudnnDestroyTensorDescriptor(of_x);
    cudnnDestroy(handle);
    cudaStreamDestroy(stream);
  }

  void describe(cudnnTensorFormat_t format, cudnnDataType_t type, cudnnDataType_t compute,
                cudnnMathType_t math) {
    cudnnSetTensor4dDescriptor(of_x, format, type, kX[0], kX[1], kX[2], kX[3]);
    cudnnSetTensor4dDescriptor(of_y, format, type, kY[0], kY[1], kY[2], kY[3]);
    cudnnSetFilter4dDescriptor(of_w, type, format, kFilter[0], kFilter[1], kFilter[2], kFilter[3]);
    cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                    compute);
    cudnnSetConvolutionMathType(convolution, math);
  }
  cudnnStatus_t find() {
    cudnnConvolutionFwdAlgoPerf_t found[8];
    int count = 0;
    return cudnnGetConvolutionForwardAlgorithm_v7(handle, of_x, of_w, convolution, of_y, 8, &count,
                                                  found);
  }
  std::size_t needed() {
    std::size_t bytes = 0;
    cudnnGetConvolutionForwardWorkspaceSize(handle, of_x, of_w, convolution, of_y, kAlgorithm,
                                            &bytes);
    return bytes;
  }
  cudnnStatus_t run(const void* from, const void* by, void* to, void* memory, std::size_t bytes) {
    const float one = 1, zero = 0;
    return cudnnConvolutionForward(handle, &one, of_x, from, of_w, by, convolution, kAlgorithm,
                                   memory, bytes, &zero, of_y, to);
  }

  static constexpr std::size_t kBytes = 4096;
  static constexpr auto kAlgorithm = CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM;
  cudaStream_t stream = nullptr;
  cudnnHandle_t handle = nullptr;
  cudnnTensorDescriptor_t of_x = nullptr, of_y = nullptr;
  cudnnFilterDescriptor_t of_w = nullptr;
  cudnnConvolutionDescriptor_t convolution = nullptr;
  void *x = nullptr, *w = nullptr, *y = nullptr, *workspace = nullptr;
};

TEST_F(EmulatedCudnn, RunsWhatIsRight) {
  EXPECT_EQ(find(), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(run(x, w, y, workspace, needed()), CUDNN_STATUS_SUCCESS);
}

TEST_F(EmulatedCudnn, RefusesLayoutsAndTypesThatTheDocumentationLacks) {
  describe(CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH);
  EXPECT_EQ(find(), CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
  describe(CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, CUDNN_DATA_BFLOAT16, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(find(), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  describe(CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, CUDNN_FMA_MATH);
  EXPECT_EQ(find(), CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
  describe(CUDNN_TENSOR_NHWC, CUDNN_DATA_BFLOAT16, CUDNN_DATA_FLOAT, CUDNN_TENSOR_OP_MATH);
  EXPECT_EQ(find(), CUDNN_STATUS_SUCCESS);
  cudnnSetFilter4dDescriptor(of_w, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NHWC, 4, 3, 3, 3);
  EXPECT_EQ(find(), CUDNN_STATUS_BAD_PARAM);
}

TEST_F(EmulatedCudnn, RefusesShapesThatDoNotFit) {
  cudnnSetTensor4dDescriptor(of_y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 4, 5, 5);
  EXPECT_EQ(find(), CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
  EXPECT_EQ(cudnnSetTensor4dDescriptor(of_y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 2, 0, 5, 5),
            CUDNN_STATUS_BAD_PARAM);
  EXPECT_EQ(
      cudnnSetTensor4dDescriptor(of_y, CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, 1 << 16, 1 << 16, 1, 1),
      CUDNN_STATUS_NOT_SUPPORTED);
}

TEST_F(EmulatedCudnn, RefusesMemoryThatIsMissingShortOrMisaligned) {
  char* const bytes = static_cast<char*>(x);
  EXPECT_EQ(run(nullptr, w, y, workspace, needed()), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(run(x, w, y, nullptr, needed()), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  EXPECT_EQ(run(x, w, y, workspace, needed() - 1), CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
  EXPECT_EQ(run(bytes + 4, w, y, workspace, needed()), CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
  EXPECT_EQ(run(bytes + kBytes - 16, w, y, workspace, needed()), CUDNN_STATUS_EXECUTION_FAILED);
}

TEST_F(EmulatedCudnn, RefusesAStreamThatIsNone) {
  EXPECT_EQ(cudnnSetStream(handle, nullptr), CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
}

TEST_F(EmulatedCudnn, FindsNoAlgorithmsInACapture) {
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  EXPECT_EQ(find(), CUDNN_STATUS_INTERNAL_ERROR);
  cudaGraph_t graph = nullptr;
  EXPECT_NE(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  cudaGetLastError();
}

}  // namespace
