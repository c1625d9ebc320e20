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
  write_text(folder_ / "cifar10" / "cifar-10-batches-py" / "data_batch_1", "\x80\x02}q");
  std::filesystem::remove(folder_ / "cifar10" / "cifar-10-batches-py" / "data_batch_1.bin");
  expect_error(
      ErrorCode::Io,
      "cifar-10-batches-py' is CIFAR-10's Python version; the binary one is needed); fetch "
      "it with: datasets/fetch.sh cifar10",
      [&] { load(); });
}

TEST_F(CifarFolder, ALabelThatIsNoClassIsNamed) {
  write_text(binary() / "test_batch.bin", image(10, 'r', 'g', 'b'));
  expect_error(ErrorCode::Io, "the label of image 0 is 10; cifar10 has the classes 0 to 9",
               [&] { load(); });
}

TEST_F(CifarFolder, FilesElsewhereBelowTheFolderAreNamed) {
  std::filesystem::create_directories(folder_ / "sets" / "images");
  std::filesystem::rename(folder_ / "cifar10", folder_ / "sets" / "images" / "photographs");
  const std::string place = (folder_ / "sets/images/photographs/cifar-10-batches-bin").string();
  expect_error(ErrorCode::Io, "it lies in '" + place + "': use --data-dir " + place,
               [&] { load(); });
  EXPECT_EQ(load_dataset(parse_dataset("cifar10"), place, 0).train.num_rows(), 5u);
}

TEST_F(CifarFolder, Cifar100IsNamed) {
  const std::filesystem::path other = folder_ / "cifar-100-binary";
  std::filesystem::rename(binary(), other);
  std::filesystem::rename(other / "data_batch_1.bin", other / "train.bin");
  std::filesystem::rename(other / "test_batch.bin", other / "test.bin");
  const std::string message =
      "what lies in '" + other.string() +
      "' is CIFAR-100, and --dataset cifar10 reads only CIFAR-10); fetch it";
  expect_error(ErrorCode::Io, message, [&] { load(); });
  expect_error(ErrorCode::Io, message, [&] { load_dataset(parse_dataset("cifar10"), other, 0); });
}

TEST_F(CifarFolder, Cifar100UnderTheNamesOfCifar10IsNamed) {
  const std::string two_labels = "\x03" + image(17, 'r', 'g', 'b');
  write_text(binary() / "data_batch_1.bin", two_labels + two_labels);
  expect_error(ErrorCode::Io, "(its size is that of CIFAR-100's images); fetch", [&] { load(); });
}

TEST_F(CifarFolder, AMissingFileAmongOthersIsNamed) {
  std::filesystem::remove(binary() / "data_batch_4.bin");
  expect_error(ErrorCode::Io, "has data_batch_1.bin, but no data_batch_4.bin; fetch CIFAR-10 again",
               [&] { load(); });
}

TEST_F(CifarFolder, MissingFilesSayHowToFetchThem) {
  std::filesystem::remove_all(folder_ / "cifar10");
  expect_error(ErrorCode::Io, "datasets/fetch.sh cifar10 " + folder_.path().string(),
               [&] { load(); });
}

}  // namespace
}  // namespace lockstep::datasets
