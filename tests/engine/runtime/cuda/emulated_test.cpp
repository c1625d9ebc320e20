// Only on an emulated GPU: machines that are not there, kernels that fail, and GPUs that are full.
#include "engine/core/thread_context.h"
#include "engine/runtime/cuda_device.h"
#include "engine/runtime/step_graph.h"
#include "tests/emulated_gpu/control.h"
#include "tests/engine/runtime/cuda/cuda_test.h"

namespace lockstep::runtime {
namespace {

// --- machines without a GPU, with an old driver, without peer access ---

TEST(Machines, WithoutAGpuSayWhatMayHideIt) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "0", 1);
    EXPECT_TRUE(physical_gpus().empty());
    EXPECT_EQ(num_devices(DeviceType::cuda), 0);
    EXPECT_TRUE(logical_gpus().empty());
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("CUDA_VISIBLE_DEVICES"));
    expect_error(ErrorCode::Device, "cuda:0 does not exist: CUDA finds no GPU",
                 [] { logical_device(kFirst); });
    expect_error(ErrorCode::Device, "'cuda:0*2' needs a GPU: CUDA finds no GPU",
                 [] { set_virtual_devices("cuda:0*2"); });
  });
}

TEST(Machines, WithAnOldDriverSayWhatTheyNeed) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_DRIVER", "11080", 1);
    const std::string needed =
        std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
    EXPECT_TRUE(physical_gpus().empty());
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("the NVIDIA driver serves CUDA 11.8 and this "
                                                      "build needs " +
                                                      needed));
  });
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_DRIVER", "0", 1);
    EXPECT_THAT(no_gpu_reason(), ::testing::HasSubstr("no NVIDIA driver is installed"));
  });
}

TEST(Machines, WithoutPeerAccessCopyAllTheSame) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    setenv("LOCKSTEP_EMULATED_PEER_ACCESS", "none", 1);
    EXPECT_FALSE(has_peer_access(0, 1));
    EXPECT_TRUE(has_peer_access(1, 1));
    const Device gpus[] = {{DeviceType::cuda, 0}, {DeviceType::cuda, 1}};
    for (int round = 0; round < 5; ++round) {
      const Tensor x = Tensor::full({10'000}, round, DType::float32, gpus[0]);
      const Tensor y = Tensor::full({10'000}, -1, DType::float32, gpus[1]);
      y.copy_from(x);
      x.fill(9);
      x.copy_from(y);
      y.fill(8);
      EXPECT_EQ(values_of(x), std::vector<float>(10'000, float(round)));
    }
  });
}

TEST(Machines, WithoutPeerAccessTellEachGpuTheStepOfAGraph) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    setenv("LOCKSTEP_EMULATED_PEER_ACCESS", "none", 1);
    const Device gpus[] = {{DeviceType::cuda, 0}, {DeviceType::cuda, 1}};
    std::vector<Tensor> steps;
    for (const Device gpu : gpus) steps.push_back(Tensor::zeros({1}, DType::int64, gpu));
    StepGraph graph({gpus[0], gpus[1]});
    for (std::uint64_t step = 0; step < 6; ++step) {
      thread_context().step = step;
      graph.run([&] {
        for (const Tensor& tensor : steps) {
          const std::int64_t* number = captured_step_number(tensor.device());
          if (number == nullptr) continue;  // a step that warms up
          copy_on_cuda_stream(tensor.stream(), tensor.raw(), number, sizeof(*number));
        }
      });
    }
    for (const Tensor& tensor : steps) {
      std::int64_t found = 0;
      copy_on_cuda_stream(tensor.stream(), &found, tensor.raw(), sizeof(found));
      tensor.stream().synchronize();
      EXPECT_EQ(found, 5);
    }
  });
}

TEST(Machines, WhosePeerAccessIsPromisedAndRefusedWorkAllTheSame) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    setenv("LOCKSTEP_EMULATED_PEER_ACCESS", "refused", 1);
    const Device gpus[] = {{DeviceType::cuda, 0}, {DeviceType::cuda, 1}};
    EXPECT_TRUE(has_peer_access(0, 1));
    const Tensor x = Tensor::full({100}, 3, DType::float32, gpus[0]);
    const Tensor y = Tensor::zeros({100}, DType::float32, gpus[1]);
    EXPECT_FALSE(has_peer_access(0, 1));
    EXPECT_FALSE(reaches(logical_device(gpus[1]), logical_device(gpus[0])));
    y.copy_from(x);
    EXPECT_EQ(values_of(y), std::vector<float>(100, 3));
  });
}

// Another library of the process, such as NCCL, may have enabled it.
TEST(Machines, WhosePeerAccessIsEnabledAlreadyWorkAllTheSame) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    cudaSetDevice(1);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
    EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    const Device gpus[] = {{DeviceType::cuda, 0}, {DeviceType::cuda, 1}};
    logical_device(gpus[0]);
    EXPECT_TRUE(reaches(logical_device(gpus[1]), logical_device(gpus[0])));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  });
}

TEST(Machines, WithoutCodeForTheirGpuNameTheOption) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_KERNELS", "none", 1);
    expect_error(ErrorCode::Device,
                 "this build has no code for GPU 0, Emulated GPU 0 of compute capability 9.0; "
                 "configure it with -DCMAKE_CUDA_ARCHITECTURES=90",
                 [] { Tensor::full({3}, 1, DType::float32, kFirst); });
  });
}

// --- kernels that fail when they run, long after they were launched ---

class KernelFailures : public CudaTest {
 protected:
  void TearDown() override { emulated_gpu::clear_faults(); }
  // The stream is held up until the kernel is launched: the launch itself is no failure.
  static void launch_kernel_that_fails(const Tensor& x) {
    x.fill(1);
    x.stream().synchronize();
    Gate gate;
    gate.block(x.stream());
    emulated_gpu::fail_next_kernel(cuda::cuda_stream(x.stream()).handle());
    x.fill(1);
  }
};

constexpr const char* kWords = "an illegal memory access was encountered (cudaErrorIllegalAddress)";

TEST_F(KernelFailures, AreThrownByTheNextWait) {
  const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
  compute().synchronize();
  launch_kernel_that_fails(x);
  expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
  expect_error(ErrorCode::Cuda, kWords, [&] { values_of(x); });
  emulated_gpu::clear_faults();
  x.fill(2);
  EXPECT_EQ(values_of(x), std::vector<float>(100, 2));
}

TEST_F(KernelFailures, LetMemoryGoWithoutAnotherError) {
  {
    const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
    const Tensor y = Tensor::zeros({200}, DType::float32, kFirst);
    y.storage()->record_use(comm());
    launch_kernel_that_fails(x);
    expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
  }
  logical_device(kFirst).own_memory().release_cached();
  emulated_gpu::clear_faults();
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

TEST_F(KernelFailures, InsideAGraphEndItWithoutAnotherError) {
  const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
  {
    StepGraph graph({kFirst, kSibling});
    const auto step = [&] { x.copy_from(Tensor::full({100}, 1, DType::float32, kFirst)); };
    while (!graph.is_captured()) graph.run(step);
    compute().synchronize();
    launch_kernel_that_fails(x);
    expect_error(ErrorCode::Cuda, kWords, [] { compute().synchronize(); });
    expect_error(ErrorCode::Cuda, kWords, [&] { graph.run(step); });
  }
  emulated_gpu::clear_faults();
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

TEST_F(KernelFailures, OfOneGpuAreNotAnothers) {
  if (logical_device(kOther).gpu() == 0) GTEST_SKIP() << "needs 2 GPUs, found 1";
  logical_device(kFirst);  // in use before: a GPU that failed cannot be connected with any more
  launch_kernel_that_fails(Tensor::empty({10}, DType::float32, kOther));
  expect_error(ErrorCode::Cuda, kWords, [] { compute(kOther).synchronize(); });
  EXPECT_EQ(values_of(Tensor::full({10}, 1, DType::float32, kFirst)), std::vector<float>(10, 1));
}

// The fixture's SetUp would come before the variable is set.
TEST(BlockingLaunches, NameTheOperationWhoseKernelFailed) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_CUDA_BLOCKING", "1", 1);
    const Tensor x = Tensor::zeros({100}, DType::float32, kFirst);
    emulated_gpu::fail_next_kernel(cuda::cuda_stream(compute()).handle());
    expect_error(ErrorCode::Cuda, std::string("[fill] its CUDA kernel failed: ") + kWords,
                 [&] { x.fill(1); });
  });
}

// --- GPUs that run out of memory, and what is given back to them ---

using emulated_gpu::num_allocated_bytes;

constexpr std::size_t kMiB = std::size_t{1} << 20;

class FullGpu : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    for (int i = 0; i < kNumDevices; ++i) release(Device{DeviceType::cuda, i});
  }
  void TearDown() override { emulated_gpu::clear_faults(); }
  static void release(Device device) {
    logical_device(device).own_memory().release_cached();
    logical_device(device).copy_pool().release_cached();
  }
  static Tensor make(std::size_t num_bytes, Device device = kFirst) {
    return Tensor::empty({num_bytes}, DType::uint8, device);
  }
};

TEST_F(FullGpu, SaysWhatIsFreeAndWhatTensorsHold) {
  MemoryPool& pool = logical_device(kFirst).own_memory();
  const Tensor held = make(kMiB);
  pool.reset_peak();
  make(2 * kMiB);
  const auto before = pool.statistics();
  const std::size_t num_allocated = num_allocated_bytes() - 2 * kMiB;  // it is given back first
  emulated_gpu::fail_allocations_after(kMiB);
  expect_error(
      ErrorCode::Device,
      "[allocate] out of memory on cuda:0: asked for " + std::to_string(8 * kMiB) + " bytes, ",
      [] { make(8 * kMiB); });
  expect_error(ErrorCode::Device,
               " are free, tensors hold " + std::to_string(before.current_bytes) + " (peak " +
                   std::to_string(before.peak_bytes) + "); use a smaller batch or model",
               [] { make(8 * kMiB); });
  EXPECT_EQ(num_allocated_bytes(), num_allocated);
  EXPECT_EQ(pool.statistics().current_bytes, before.current_bytes);
  EXPECT_EQ(pool.statistics().peak_bytes, before.peak_bytes);
  make(kMiB / 2).fill(0);  // there is room for less
  compute().synchronize();
}

TEST_F(FullGpu, IsAnErrorAlsoInACapture) {
  make(3 * kMiB);            // these would be given back,
  make(3 * kMiB, kSibling);  // which must not break the capture
  const Tensor x = make(kMiB);
  StepGraph graph({kFirst});
  bool asks_for_more = false;
  const auto step = [&] {
    const Tensor a = Tensor::full({kMiB}, 5, DType::uint8, kFirst);
    x.copy_from(a);
    if (asks_for_more) make(2 * kMiB);
  };
  for (std::size_t i = 0; i < StepGraph::kNumWarmUps; ++i) graph.run(step);
  asks_for_more = true;
  emulated_gpu::fail_allocations_after(0);
  expect_error(ErrorCode::Device, "out of memory on cuda:0 (graph): asked for",
               [&] { graph.run(step); });
  emulated_gpu::clear_faults();
  EXPECT_EQ(logical_device(kSibling).own_memory().statistics().cached_bytes, 0u);
  graph.run(step);
  EXPECT_TRUE(graph.is_captured());
  EXPECT_EQ(x.to_vector<std::uint8_t>(), std::vector<std::uint8_t>(kMiB, 5));
}

TEST_F(FullGpu, GetsBackTheMemoryOfGraphs) {
  const std::size_t before = num_allocated_bytes();
  {
    const Tensor x = make(kMiB);
    for (int round = 0; round < 3; ++round) {
      StepGraph graph({kFirst, kSibling});
      while (!graph.is_captured()) {
        graph.run([&] {
          const Tensor a = Tensor::full({kMiB}, round, DType::uint8, kFirst);
          const Tensor b = a.to(kSibling);
          b.storage()->record_use(compute(kFirst));
          x.copy_from(b);
        });
      }
    }
    EXPECT_EQ(num_allocated_bytes(), before + kMiB);
  }
  release(kFirst);
  EXPECT_EQ(num_allocated_bytes(), before);
}

// In a process whose GPUs are small: SetUp would come before that is said.
TEST(SmallGpu, GetsBackWhatSiblingsOnItKeepFree) {
  EXPECT_IN_NEW_PROCESS({
    setenv("LOCKSTEP_EMULATED_MEMORY_MIB", "32", 1);
    setenv("LOCKSTEP_EMULATED_GPUS", "2", 1);
    set_virtual_devices("cuda:0*3,cuda:1");
    const auto make = [](Device device) {
      return Tensor::empty({24 * kMiB}, DType::uint8, device);
    };
    const auto cached = [](Device device) {
      return logical_device(device).own_memory().statistics().cached_bytes;
    };
    make(kSibling);
    make(kOther);
    EXPECT_EQ(cached(kSibling), 24 * kMiB);
    EXPECT_EQ(make(kFirst).num_bytes(), 24 * kMiB);
    EXPECT_EQ(cached(kSibling), 0u);
    EXPECT_EQ(cached(kFirst), 24 * kMiB);
    EXPECT_EQ(cached(kOther), 24 * kMiB) << "another GPU's memory is of no use";
    const Tensor held = make(kFirst);
    expect_error(ErrorCode::Device,
                 "out of memory on cuda:1: asked for 25165824 bytes, 8388608 are free",
                 [&] { make(kSibling); });
  });
}

}  // namespace
}  // namespace lockstep::runtime
