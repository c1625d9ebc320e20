#include "datasets/dataset.h"

#include <gtest/gtest.h>

#include "tests/datasets/idx_files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

TEST(ParseDataset, ReadsEveryNameAndWritesItBack) {
  for (const char* text : {"digits", "mnist", "fashion-mnist", "cifar10", "synthetic:60000x784x10",
                           "synthetic:100x8x6x3x5"}) {
    EXPECT_EQ(to_string(parse_dataset(text)), text);
  }
  EXPECT_EQ(parse_dataset("fashion-mnist").kind, DatasetKind::fashion_mnist);
  EXPECT_EQ(parse_dataset("synthetic:60000x784x10").synthetic, (SyntheticSize{60000, 784, 10}));
  EXPECT_EQ(parse_dataset("synthetic:100x8x6x3x5").synthetic,
            (SyntheticSize{100, 144, 5, {8, 6, 3}}));
}

TEST(ParseDataset, SaysWhatIsAllowed) {
  for (const char* text : {"", "imagenet", "MNIST", "digits:8", "synthetic"}) {
    expect_error(ErrorCode::Usage,
                 "digits, mnist, fashion-mnist, cifar10 or synthetic:ROWSxFEATURESxCLASSES",
                 [&] { parse_dataset(text); });
  }
}

TEST(ParseDataset, RefusesSyntheticSizesThatMakeNoDataSet) {
  for (const char* text :
       {"synthetic:", "synthetic:10", "synthetic:10x2", "synthetic:10x2x", "synthetic:10x2x3x4",
        "synthetic:10x2x0x4x5", "synthetic:10x2x3 ", "synthetic: 10x2x3", "synthetic:-1x2x3",
        "synthetic:0x2x3", "synthetic:10x0x3", "synthetic:10x2x1", "synthetic:1e3x2x3",
        "synthetic:10,2,3", "synthetic:99999999999999999999x2x3"}) {
    expect_error(ErrorCode::Usage, "synthetic:ROWSxFEATURESxCLASSES", [&] { parse_dataset(text); });
  }
}

TEST(ParseDataset, RefusesSyntheticSizesBeyondTheMemory) {
  for (const char* text : {"synthetic:1000000000x1000x10", "synthetic:18446744073709551615x2x3",
                           "synthetic:2x2147483648x2147483648", "synthetic:2147483648x1x2"}) {
    expect_error(ErrorCode::Usage, "16 GiB", [&] { parse_dataset(text); });
  }
}

TEST(LoadDataset, MakesSyntheticTestRowsThatContinueTheTrainingRows) {
  const Dataset dataset = load_dataset(parse_dataset("synthetic:100x8x3"), "nowhere", 4);
  EXPECT_EQ(dataset.train.features, make_synthetic_rows({100, 8, 3}, 0, 4).features);
  EXPECT_EQ(dataset.test.features, make_synthetic_rows({20, 8, 3}, 100, 4).features);
  EXPECT_EQ(load_dataset(parse_dataset("synthetic:3x8x3"), "", 4).test.num_rows(), 1u);
}

void write_small_mnist(const std::filesystem::path& folder, char first_pixel) {
  std::filesystem::create_directories(folder);
  const std::string pixels = {first_pixel, 'b'};
  write_text(folder / "train-images-idx3-ubyte", idx_bytes({2, 1, 1}, pixels));
  write_text(folder / "train-labels-idx1-ubyte.gz", gzip_bytes(idx_bytes({2}, "\x03\x04")));
  write_text(folder / "t10k-images-idx3-ubyte.gz", gzip_bytes(idx_bytes({1, 1, 1}, "c")));
  write_text(folder / "t10k-labels-idx1-ubyte", idx_bytes({1}, "\x05"));
}

TEST(LoadDataset, FindsMnistUnderTheNamesThatOtherSitesGiveIt) {
  const TempFolder folder;
  write_small_mnist(folder.path(), 'x');
  std::filesystem::rename(folder / "train-images-idx3-ubyte", folder / "train-images.idx3-ubyte");
  std::filesystem::rename(folder / "t10k-labels-idx1-ubyte", folder / "labels");
  std::filesystem::create_directories(folder / "t10k-labels-idx1-ubyte");
  std::filesystem::rename(folder / "labels",
                          folder / "t10k-labels-idx1-ubyte" / "t10k-labels-idx1-ubyte");
  EXPECT_EQ(load_dataset(parse_dataset("mnist"), folder.path(), 0).train.features[0], 'x');
}

TEST(LoadDataset, FindsMnistInItsOwnFolderFirstThenInTheGivenOne) {
  const TempFolder folder;
  write_small_mnist(folder.path(), 'x');
  EXPECT_EQ(load_dataset(parse_dataset("mnist"), folder.path(), 0).train.features[0], 'x');
  write_small_mnist(folder / "mnist", 'm');
  write_small_mnist(folder / "fashion-mnist", 'f');
  const Dataset mnist = load_dataset(parse_dataset("mnist"), folder.path(), 0);
  EXPECT_EQ(mnist.train.features[0], 'm');
  EXPECT_EQ(mnist.train.labels[1], 4);
  EXPECT_EQ(mnist.test.labels[0], 5);
  const Dataset fashion = load_dataset(parse_dataset("fashion-mnist"), folder.path(), 0);
  EXPECT_EQ(fashion.train.features[0], 'f');
  EXPECT_EQ(fashion.train.name, "fashion-mnist");
}

TEST(LoadDataset, RefusesTrainAndTestRowsOfDifferentShapes) {
  const TempFolder folder;
  write_small_mnist(folder.path(), 'x');
  write_text(folder / "t10k-images-idx3-ubyte.gz", gzip_bytes(idx_bytes({1, 1, 2}, "cc")));
  const auto load = [&] { load_dataset(parse_dataset("mnist"), folder.path(), 0); };
  expect_error(ErrorCode::Io, "train-images-idx3-ubyte' has shape [1, 1], but one of", load);
  expect_error(ErrorCode::Io, "t10k-images-idx3-ubyte.gz' has [1, 2]", load);
}

TEST(LoadDataset, SaysHowToFetchWhatIsMissing) {
  const TempFolder folder;
  const std::string missing = (folder / "missing").string();
  expect_error(ErrorCode::Io, "datasets/fetch.sh fashion-mnist " + missing,
               [&] { load_dataset(parse_dataset("fashion-mnist"), missing, 0); });
  write_small_mnist(folder / "mnist", 'm');
  std::filesystem::remove(folder / "mnist/t10k-labels-idx1-ubyte");
  expect_error(ErrorCode::Io, "no t10k-labels-idx1-ubyte or t10k-labels-idx1-ubyte.gz",
               [&] { load_dataset(parse_dataset("mnist"), folder.path(), 0); });
}

}  // namespace
}  // namespace lockstep::datasets
