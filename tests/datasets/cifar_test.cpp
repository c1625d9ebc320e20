#include "datasets/cifar.h"

#include <gtest/gtest.h>

#include "datasets/dataset.h"
#include "tests/datasets/idx_files.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_folder.h"

namespace lockstep::datasets {
namespace {

using lockstep::testing::expect_error;
using lockstep::testing::TempFolder;
using lockstep::testing::write_text;

// An image of one colour, but for its first pixel.
std::string image(char label, char red, char green, char blue) {
  std::string bytes(1, label);
  for (const char value : {red, green, blue}) {
    bytes += '\x7f';
    bytes += std::string(1023, value);
  }
  return bytes;
}

class CifarFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(binary());
    for (int i = 1; i <= 5; ++i) {
      write_text(binary() / fmt::format("data_batch_{}.bin", i),
                 image(static_cast<char>(i), 'r', 'g', 'b'));
    }
    write_text(binary() / "test_batch.bin", image(9, 'r', 'g', 'b') + image(0, '1', '2', '3'));
  }
  std::filesystem::path binary() const { return folder_ / "cifar10" / "cifar-10-batches-bin"; }
  Dataset load() const { return load_dataset(parse_dataset("cifar10"), folder_.path(), 0); }

  TempFolder folder_;
};

TEST_F(CifarFolder, HasPixelsOfThreeChannels) {
  const Dataset data = load();
  EXPECT_EQ(data.train.labels, (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(data.test.labels, (std::vector<std::int64_t>{9, 0}));
  EXPECT_EQ(data.train.image_shape(), (Shape{32, 32, 3}));
  const auto row = data.test.row(1);
  EXPECT_EQ(std::string(row.begin(), row.begin() + 6),
            "\x7f\x7f\x7f"
            "123");
}

TEST_F(CifarFolder, ATruncatedFileIsNamedAndSaysWhatToFetch) {
  write_text(binary() / "data_batch_3.bin", image(1, 'r', 'g', 'b') + "half an image");
  expect_error(ErrorCode::Io,
               "data_batch_3.bin' is truncated: image 1 has 13 of 3073 bytes; fetch "
               "cifar-10-binary.tar.gz again",
               [&] { load(); });
  write_text(binary() / "data_batch_3.bin", "");
  expect_error(ErrorCode::Io, "image 0 has 0 of 3073 bytes", [&] { load(); });
}

TEST_F(CifarFolder, ThePythonVersionSaysWhatToFetch) {
  write_text(binary() / "data_batch_1.bin", "\x80\x02}q" + image(0, 'r', 'g', 'b'));
  expect_error(ErrorCode::Io, "is of CIFAR-10's Python version; fetch the binary version",
               [&] { load(); });
  std::filesystem::rename(binary(), folder_ / "cifar10" / "cifar-10-batches-py");
  expect_error(ErrorCode::Io, "what lies there is CIFAR-10's Python version; the binary one is",
               [&] { load(); });
}

TEST_F(CifarFolder, ALabelThatIsNoClassIsNamed) {
  write_text(binary() / "test_batch.bin", image(10, 'r', 'g', 'b'));
  expect_error(ErrorCode::Io, "the label of image 0 is 10; cifar10 has the classes 0 to 9",
               [&] { load(); });
}

TEST_F(CifarFolder, MissingFilesSayHowToFetchThem) {
  std::filesystem::remove_all(folder_ / "cifar10");
  expect_error(ErrorCode::Io, "datasets/fetch.sh cifar10 " + folder_.path().string(),
               [&] { load(); });
}

}  // namespace
}  // namespace lockstep::datasets
