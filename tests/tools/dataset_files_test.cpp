// Files of --dataset, whole and broken, as a user meets them: exit code 1 and one line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/datasets/idx_files.h"
#include "tests/tools/run_lockstep.h"

namespace lockstep::testing {
namespace {

using datasets::gzip_bytes;
using datasets::idx_bytes;

const std::string kTwentyPixels = "abcdefghijklmnopqrst";

// Five training rows of 2x2 pixels and two test rows.
class MnistFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "mnist");
    write("train-images-idx3-ubyte", idx_bytes({5, 2, 2}, kTwentyPixels));
    write("train-labels-idx1-ubyte.gz", gzip_bytes(idx_bytes({5}, "\x01\x02\x03\x04\x09")));
    write("t10k-images-idx3-ubyte", idx_bytes({2, 2, 2}, "abcdefgh"));
    write("t10k-labels-idx1-ubyte", idx_bytes({2}, "\x01\x02"));
  }

  void write(const std::string& name, std::string_view bytes) {
    write_text(folder_ / "mnist" / name, bytes);
  }

  Outcome train() {
    return run_command("train --dataset mnist --data-dir . --model mlp:4-8-10 --batch 2",
                       folder_.path());
  }

  TempFolder folder_;
};

TEST_F(MnistFolder, TrainsOnWholeFiles) {
  const Outcome outcome = train();
  expect_success(outcome);
  EXPECT_THAT(outcome.out, ::testing::HasSubstr("5 training rows, 3 steps of 2 rows"));
}

TEST_F(MnistFolder, RowsOfAnotherSizeThanMnistsSayWhichModelFits) {
  expect_rejected(run_command("train --dataset mnist --data-dir .", folder_.path()), 2,
                  {"mlp:784-256-10", "mnist has 4 features", "use mlp:4-...-10"});
}

TEST_F(MnistFolder, ACorruptGzipFileIsNamed) {
  std::string bytes = gzip_bytes(idx_bytes({5}, "\x01\x02\x03\x04\x09"));
  bytes[bytes.size() - 8] ^= 0x55;  // its checksum
  write("train-labels-idx1-ubyte.gz", bytes);
  expect_rejected(train(), 1, {"train-labels-idx1-ubyte.gz"});
}

TEST_F(MnistFolder, AMissingFileSaysHowToFetchIt) {
  std::filesystem::remove(folder_ / "mnist/t10k-images-idx3-ubyte");
  expect_rejected(train(), 1, {"t10k-images-idx3-ubyte", "datasets/fetch.sh mnist"});
}

TEST_F(MnistFolder, FilesDeeperThanTheFolderAreFound) {
  std::filesystem::create_directories(folder_ / "deep/MNIST");
  std::filesystem::rename(folder_ / "mnist", folder_ / "deep/MNIST/raw");
  expect_rejected(
      train(), 1,
      {"no train-images-idx3-ubyte in './mnist' or '.'", "use --data-dir ./deep/MNIST/raw"});
  run_well("train --dataset mnist --data-dir ./deep/MNIST/raw --model mlp:4-8-10 --batch 2",
           folder_.path());
  expect_rejected(run_command("train --dataset fashion-mnist --data-dir .", folder_.path()), 1,
                  {"datasets/fetch.sh fashion-mnist ."});
}

TEST(Cifar100Folder, IsNamedForCifar10) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "cifar-100-binary");
  for (const char* name : {"train.bin", "test.bin"}) {
    write_text(folder / "cifar-100-binary" / name, std::string(3074, '\x03'));
  }
  for (const char* data_dir : {".", "cifar-100-binary"}) {
    expect_rejected(
        run_lockstep({"train", "--dataset", "cifar10", "--data-dir", data_dir, "--model", "lenet"},
                     folder.path()),
        1, {"cifar-100-binary' is CIFAR-100", "datasets/fetch.sh cifar10"});
  }
}

// A text, or its tokens.
class TextFile : public ::testing::Test {
 protected:
  Outcome train(const std::string& dataset) {
    return run_lockstep(
        words("train --model gpt:1-1-4-4 --steps 1 --batch 1 --save kept --dataset " + dataset),
        folder_.path());
  }
  void expect_refused(const std::string& dataset, const std::vector<std::string>& phrases) {
    write_text(folder_ / "kept", "old content");
    expect_rejected(train(dataset), 1, phrases);
    EXPECT_EQ(read_text(folder_ / "kept"), "old content");
  }

  TempFolder folder_;
};

TEST_F(TextFile, OfFourByteTokensIsRefused) {
  std::string two;
  std::string four;
  for (int token = 1000; token < 1060; ++token) {
    two += {static_cast<char>(token), static_cast<char>(token >> 8)};
    four += {static_cast<char>(token), static_cast<char>(token >> 8), 0, 0};
  }
  write_text(folder_ / "u.bin", four);
  expect_refused("tokens:u.bin", {"'u.bin' is not a file of two-byte tokens",
                                  "tokens of four bytes", "np.fromfile('u.bin', '<u4')"});
  write_text(folder_ / "u.bin", two);
  expect_success(train("tokens:u.bin"));
}

TEST_F(TextFile, MayBeginWithAByteOrderMark) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += "abab";
  write_text(folder_ / "plain.txt", text);
  write_text(folder_ / "marked.txt", "\xef\xbb\xbf" + text);
  const Outcome plain = train("text:plain.txt");
  expect_success(plain);
  EXPECT_EQ(weights_digest(train("text:marked.txt").out), weights_digest(plain.out));
  std::string wide = "\xff\xfe";
  for (const char c : text) wide += {c, '\0'};
  write_text(folder_ / "wide.txt", wide);
  expect_refused("text:wide.txt", {"'wide.txt' is UTF-16 text", "iconv -f UTF-16 -t UTF-8"});
}

}  // namespace
}  // namespace lockstep::testing
