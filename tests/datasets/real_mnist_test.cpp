// The published files of MNIST and Fashion-MNIST, if they are on this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>

#include "datasets/dataset.h"
#include "engine/core/error.h"
#include "tests/datasets/real_data.h"

namespace lockstep::datasets {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// The SHA-256 of a gzip file's content, by programs that share nothing with the reader.
std::string content_sha256(const std::filesystem::path& path) {
  const std::string command = fmt::format("gzip -dc '{}' | sha256sum", path.string());
  const std::unique_ptr<std::FILE, decltype(&pclose)> pipe(popen(command.c_str(), "r"), &pclose);
  std::array<char, 64> digest{};
  const std::size_t count = std::fread(digest.data(), 1, digest.size(), pipe.get());
  return {digest.data(), count};
}

// True if the images in folder are the published ones, because the known facts only hold for them.
testing::AssertionResult are_published(const std::filesystem::path& folder,
                                       std::string_view train_sha256,
                                       std::string_view test_sha256) {
  for (const auto& [file, sha256] : {std::pair("train-images-idx3-ubyte.gz", train_sha256),
                                     std::pair("t10k-images-idx3-ubyte.gz", test_sha256)}) {
    if (content_sha256(folder / file) != sha256) {
      return testing::AssertionFailure() << folder / file << " is not the published file";
    }
  }
  return testing::AssertionSuccess();
}

std::vector<std::ptrdiff_t> rows_per_class(const data::LabelledRows& rows) {
  std::vector<std::ptrdiff_t> counts;
  for (std::int64_t label = 0; label < 10; ++label) {
    counts.push_back(std::ranges::count(rows.labels, label));
  }
  return counts;
}

double mean_pixel(const data::LabelledRows& rows) {
  const auto sum = std::accumulate(rows.features.begin(), rows.features.end(), std::uint64_t{0});
  return static_cast<double>(sum) / static_cast<double>(rows.features.size()) / 255.0;
}

TEST(RealMnist, HasItsKnownSizesClassesAndMean) {
  const auto folder = folder_with_real("mnist");
  if (!folder) GTEST_SKIP() << "no MNIST; set LOCKSTEP_TEST_DATA (datasets/fetch.sh mnist DIR)";
  const auto published = are_published(
      *folder / "mnist", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
      "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7");
  if (!published) GTEST_SKIP() << published.message();
  const Dataset mnist = load_dataset(parse_dataset("mnist"), *folder, 0);
  EXPECT_EQ(mnist.train.row_shape, (Shape{28, 28}));
  EXPECT_THAT(rows_per_class(mnist.train),
              ElementsAre(5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949));
  EXPECT_THAT(rows_per_class(mnist.test),
              ElementsAre(980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009));
  EXPECT_THAT(std::vector(mnist.train.labels.begin(), mnist.train.labels.begin() + 5),
              ElementsAre(5, 0, 4, 1, 9));
  EXPECT_NEAR(mean_pixel(mnist.train), 0.1307, 5e-5);
}

TEST(RealFashionMnist, HasItsKnownSizesClassesAndMean) {
  const auto folder = folder_with_real("fashion-mnist");
  if (!folder) GTEST_SKIP() << "no Fashion-MNIST; set LOCKSTEP_TEST_DATA";
  const auto published = are_published(
      *folder / "fashion-mnist", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
      "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b");
  if (!published) GTEST_SKIP() << published.message();
  const Dataset fashion = load_dataset(parse_dataset("fashion-mnist"), *folder, 0);
  EXPECT_THAT(rows_per_class(fashion.train), Each(6000));
  EXPECT_THAT(rows_per_class(fashion.test), Each(1000));
  EXPECT_NEAR(mean_pixel(fashion.train), 0.2860, 5e-5);
}

}  // namespace
}  // namespace lockstep::datasets
