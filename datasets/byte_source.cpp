#include "datasets/byte_source.h"

#include <zlib.h>

#include <algorithm>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kReadOperation = "read";
constexpr unsigned kBufferBytes = 1U << 18;
constexpr std::size_t kLargestRead = std::size_t{1} << 30;  // gzread counts in int
// "the maximum compression factor is 1032:1" (zlib, technical details).
constexpr std::uint64_t kMaxDeflateRatio = 1032;

}  // namespace

void ByteSource::Close::operator()(gzFile_s* file) const {
  gzclose(file);
}

ByteSource::ByteSource(const std::filesystem::path& path) {
  const InputFile file(path,
                       kReadOperation);  // refuses folders, pipes and files that may not be read
  name_ = file.name();
  file_bytes_ = file.num_bytes();
  file_.reset(gzopen(path.c_str(), "rb"));
  require(file_ != nullptr, ErrorCode::Io, kReadOperation, "cannot open '{}'", name_);
  gzbuffer(file_.get(), kBufferBytes);
}

std::size_t ByteSource::read(std::span<std::uint8_t> destination) {
  std::size_t num_read = 0;
  while (num_read < destination.size()) {
    const std::size_t wanted = std::min(destination.size() - num_read, kLargestRead);
    const int count =
        gzread(file_.get(), destination.data() + num_read, static_cast<unsigned>(wanted));
    int status = Z_OK;
    const std::string reason = gzerror(file_.get(), &status);
    require(status != Z_BUF_ERROR, ErrorCode::Io, kReadOperation, "'{}' is truncated gzip data",
            name_);
    require(count >= 0, ErrorCode::Io, kReadOperation, "'{}' is corrupt gzip data: {}", name_,
            reason);
    if (count == 0) break;
    num_read += static_cast<std::size_t>(count);
  }
  return num_read;
}

std::uint64_t ByteSource::max_content_bytes() const {
  return gzdirect(file_.get()) == 1 ? file_bytes_ : file_bytes_ * kMaxDeflateRatio;
}

std::optional<std::filesystem::path> folder_below(const std::filesystem::path& folder,
                                                  std::string_view file) {
  namespace fs = std::filesystem;
  constexpr int kMostLevels = 4;
  constexpr int kMostEntries = 10000;
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied,
                                         error);
  for (int i = 0; i < kMostEntries && !error && entry != fs::end(entry); ++i) {
    const fs::path path = entry->path();
    if (path.filename() == file && entry->is_regular_file(error)) return path.parent_path();
    if (entry.depth() >= kMostLevels) entry.disable_recursion_pending();
    entry.increment(error);
  }
  return std::nullopt;
}

}  // namespace lockstep::datasets
