// The file in which timed products are kept for later runs.
#include "kernels/cuda/product_file.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "engine/core/files.h"
#include "gpu_test.h"
#include "kernels/cuda/product.h"
#include "kernels/matmul_precision.h"

namespace lockstep::kernels::cuda {
namespace {

class ProductFile : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    forget_products();
  }
  void TearDown() override {
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    forget_products();
  }

  // A step is over when its products come again: then they are written.
  static void run_two_steps() {
    const SomeProduct product(24, 12, 40);
    product.run();
    product.run();
    EXPECT_LE(product.error(), 1e-5);
  }
  // Starts afresh, as another process does. Returns the number of products that are timed.
  static std::size_t num_timed_by_another() {
    forget_products();
    run_two_steps();
    return num_timed_products();
  }
  std::filesystem::path file() const {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
      if (entry.is_regular_file()) all.push_back(entry.path());
    }
    EXPECT_EQ(all.size(), 1u);
    return all.empty() ? std::filesystem::path() : all[0];
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(ProductFile, SparesLaterProcessesTheTiming) {
  EXPECT_EQ(num_timed_by_another(), 1u);
  EXPECT_EQ(num_timed_by_another(), 0u);
  EXPECT_NE(file(), "");
}

TEST_F(ProductFile, ThatIsDamagedCountsAsNoneAndIsReplaced) {
  num_timed_by_another();
  const std::string whole = read_text_file(file(), "test");
  std::vector<std::string> damaged = {"", "\n", whole.substr(0, whole.size() / 2),
                                      whole.substr(0, whole.find('\n') + 1), whole + whole};
  for (std::size_t at = 0; at < whole.size(); at += 7) {
    damaged.push_back(whole);
    damaged.back()[at] = damaged.back()[at] == '1' ? '2' : '1';
  }
  for (const std::string& text : damaged) {
    SCOPED_TRACE(text);
    write_file_atomically(file(), text);
    EXPECT_EQ(num_timed_by_another(), 1u);
    EXPECT_EQ(num_timed_by_another(), 0u);
  }
}

TEST_F(ProductFile, IsNeitherReadNorWrittenWithoutTuning) {
  num_timed_by_another();
  const std::filesystem::path kept = file();
  std::filesystem::remove(kept);
  const UntunedScope untuned;
  EXPECT_EQ(num_timed_by_another(), 0u);
  EXPECT_FALSE(std::filesystem::exists(kept));
}

TEST_F(ProductFile, ThatCannotBeWrittenIsDoneWithout) {
  setenv("XDG_CACHE_HOME", "/dev/null", 1);
  EXPECT_EQ(num_timed_by_another(), 1u);
  EXPECT_EQ(num_timed_by_another(), 1u);
}

TEST_F(ProductFile, StaysWholeWhileSeveralWrite) {
  constexpr int kNumWriters = 4, kNumRounds = 10;
  std::vector<std::thread> writers;
  for (int writer = 0; writer < kNumWriters; ++writer) {
    writers.emplace_back([writer] {
      for (int round = 0; round < kNumRounds; ++round) {
        keep_products(0, {{ProductKey{0, 1, writer, round}, Plan{}}});
        EXPECT_FALSE(read_products(0).empty());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_FALSE(read_products(0).empty());
  EXPECT_NE(file(), "");  // and nothing unfinished beside it
}

}  // namespace
}  // namespace lockstep::kernels::cuda
