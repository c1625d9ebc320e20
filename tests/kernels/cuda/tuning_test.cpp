// How the algorithms of products are chosen and remembered.
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/core/log.h"
#include "engine/runtime/logical_device.h"
#include "engine/runtime/step_graph.h"
#include "gpu_products.h"
#include "kernels/cuda/tuner.h"
#include "kernels/cuda/tuning_cache.h"
#include "kernels/matmul_precision.h"
#include "kernels/matmul_tuning.h"
#include "tests/support/temp_folder.h"

namespace lockstep::kernels::cuda {
namespace {

class CudaTuning : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    ::unsetenv("LOCKSTEP_TUNING_CACHE");
    forget_tuning();
  }
  void TearDown() override {
    ::unsetenv("LOCKSTEP_TUNING_CACHE");
    forget_tuning();
    set_matmul_precision(MatmulPrecision::highest);
  }
  void use_cache(const std::filesystem::path& path) {
    ::setenv("LOCKSTEP_TUNING_CACHE", path.c_str(), 1);
    forget_tuning();
  }
};

// c = a * b on device memory, for a stream of choice.
class SomeProduct {
 public:
  SomeProduct(std::size_t rows, std::size_t cols, std::size_t depth, std::size_t offset = 0)
      : a_(random_grid<float>(rows, depth, 0, 1), offset),
        b_(random_grid<float>(depth, cols, 0, 2)),
        c_(Grid<float>(rows, cols)) {}
  void run(Stream& stream, Write write = Write::overwrite) const {
    gpu().matmul(stream, a_.view(), Transpose::no, b_.view(), Transpose::no, c_.view(), write);
  }
  std::vector<float> result() const { return c_.grid().values; }

 private:
  GridOnGpu<float> a_, b_, c_;
};

Stream& compute() {
  return gpu_stream();
}

TEST_F(CudaTuning, TimesAProductWhenItIsFirstSeen) {
  const SomeProduct product(20, 12, 8), other(20, 12, 12);
  product.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  product.run(compute());
  SomeProduct(20, 12, 8).run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  other.run(compute());
  product.run(compute(), Write::accumulate);
  set_matmul_precision(MatmulPrecision::high);
  product.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 4u);
}

TEST_F(CudaTuning, LeavesWhatIsThereAloneWhileItTimes) {
  const SomeProduct product(20, 12, 8);
  product.run(compute());
  const auto once = product.result();
  product.run(compute(), Write::accumulate);  // timed now, and added once
  const auto twice = product.result();
  // Another algorithm may be the fastest when adding, and sums in another order.
  for (std::size_t i = 0; i < once.size(); ++i) EXPECT_NEAR(twice[i], 2 * once[i], 1e-4);
}

TEST_F(CudaTuning, TheRowAtWhichAShardBeginsMakesNoOtherProduct) {
  const SomeProduct whole(16, 12, 8);
  whole.run(compute());
  SomeProduct(16, 12, 8, 8).run(compute());  // begins a row later
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  SomeProduct(16, 12, 8, 1).run(compute());  // begins where no vector can be loaded
  EXPECT_EQ(tuning_statistics().num_timed, 2u);
}

TEST_F(CudaTuning, ThreadsThatMeetTheSameProductTimeItOnce) {
  runtime::LogicalDevice& device = gpu_device();
  const std::vector<SomeProduct*> products{new SomeProduct(24, 12, 8), new SomeProduct(24, 12, 8),
                                           new SomeProduct(24, 12, 8)};
  device.compute_stream().synchronize();
  std::vector<std::thread> threads;
  for (SomeProduct* product : products) {
    threads.emplace_back([&, product] { product->run(device.compute_stream()); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  for (SomeProduct* product : products) {
    EXPECT_EQ(product->result(), products[0]->result());
  }
  for (SomeProduct* product : products) delete product;
}

TEST_F(CudaTuning, NothingIsTimedWhereItIsOff) {
  const UntunedScope untuned;
  const SomeProduct product(20, 12, 8);
  product.run(compute());
  product.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 0u);
}

TEST_F(CudaTuning, NothingIsTimedWhileAStepIsCaptured) {
  const SomeProduct seen(20, 12, 8), unseen(20, 8, 12);
  runtime::StepGraph graph({gpu_device().device()});
  for (std::size_t i = 0; i < runtime::StepGraph::kNumWarmUps; ++i) {
    graph.run([&] { seen.run(compute()); });
  }
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  graph.run([&] {
    seen.run(compute());
    unseen.run(compute());
  });
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  const auto captured = unseen.result();
  unseen.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 2u);
  const std::vector<double> expected(captured.begin(), captured.end());
  EXPECT_LE(relative_error(unseen.result(), expected), 1e-6);
}

std::string content_of(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST_F(CudaTuning, AFileKeepsTheChoicesForTheNextProcess) {
  const lockstep::testing::TempFolder folder;
  const auto path = folder.path() / "tuning";
  use_cache(path);
  const SomeProduct product(20, 12, 8), other(20, 12, 12);
  product.run(compute());
  other.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 2u);
  const std::string text = content_of(path);
  forget_tuning();  // as a new process would begin
  product.run(compute());
  other.run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 0u);
  EXPECT_EQ(tuning_statistics().num_loaded, 2u);
  EXPECT_EQ(content_of(path), text);
}

TEST_F(CudaTuning, LinesOfOtherGpusAndVersionsAreKept) {
  const lockstep::testing::TempFolder folder;
  const auto path = folder.path() / "tuning";
  use_cache(path);
  SomeProduct(20, 12, 8).run(compute());
  std::string foreign = content_of(path);
  foreign.replace(foreign.find('\n') + 1, 0, "Another GPU of ");
  std::ofstream(path) << foreign;
  forget_tuning();
  SomeProduct(20, 12, 8).run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 1u);
  EXPECT_NE(content_of(path).find("Another GPU of "), std::string::npos);
}

TEST_F(CudaTuning, ADamagedFileIsReplaced) {
  const lockstep::testing::TempFolder folder;
  const auto path = folder.path() / "tuning";
  use_cache(path);
  SomeProduct(20, 12, 8).run(compute());
  const std::string text = content_of(path);
  for (const std::size_t length : {text.size() - 30, text.size() / 2}) {
    std::ofstream(path) << text.substr(0, length);
    forget_tuning();
    SomeProduct(20, 12, 8).run(compute());
    EXPECT_EQ(tuning_statistics().num_timed, 1u);
    forget_tuning();
    SomeProduct(20, 12, 8).run(compute());
    EXPECT_EQ(tuning_statistics().num_loaded, 1u);
  }
}

TEST_F(CudaTuning, AFileOfSomebodyElseIsNeverWritten) {
  const lockstep::testing::TempFolder folder;
  const auto path = folder.path() / "thesis.txt";
  std::ofstream(path) << "Chapter 1\n";
  use_cache(path);
  SomeProduct(20, 12, 8).run(compute());
  EXPECT_EQ(content_of(path), "Chapter 1\n");
}

TEST_F(CudaTuning, AFileThatCannotBeWrittenDisturbsNothing) {
  use_cache("/nowhere/to/be/found");
  SomeProduct(20, 12, 8).run(compute());
  SomeProduct(20, 12, 12).run(compute());
  EXPECT_EQ(tuning_statistics().num_timed, 2u);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
