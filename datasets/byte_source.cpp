#include "datasets/byte_source.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::datasets {
namespace {

constexpr std::string_view kOperation = "read";
constexpr std::size_t kBufferBytes = std::size_t{1} << 18;
// "the maximum compression factor is 1032:1" (zlib, technical details).
constexpr std::uint64_t kMaxDeflateRatio = 1032;
// windowBits of inflateInit2: the largest window, and a gzip header and checksum around the data.
constexpr int kGzipWindowBits = 15 + 16;

// zlib's decompressor; owned, so that inflateEnd always runs.
class Inflater {
 public:
  Inflater() {
    require(inflateInit2(&stream, kGzipWindowBits) == Z_OK, ErrorCode::Io, kOperation,
            "zlib cannot start: {}", stream.msg == nullptr ? "out of memory" : stream.msg);
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
};

}  // namespace

class ByteSource::State {
 public:
  explicit State(const std::filesystem::path& path) : file(path, kOperation) {
    refill();
    constexpr std::array<std::uint8_t, 2> kGzipMagic = {0x1f, 0x8b};
    if (num_buffered_ >= 2 && std::memcmp(buffer_.data(), kGzipMagic.data(), 2) == 0) {
      inflater_ = std::make_unique<Inflater>();
    }
  }

  std::size_t read(std::span<std::uint8_t> destination) {
    return inflater_ == nullptr ? read_plain(destination) : read_gzip(destination);
  }

  bool is_gzip() const { return inflater_ != nullptr; }

  InputFile file;

 private:
  // Loads the next part of the file; num_buffered_ is 0 at its end.
  void refill() {
    position_ = 0;
    num_buffered_ = file.read(std::as_writable_bytes(std::span(buffer_)));
  }

  std::size_t read_plain(std::span<std::uint8_t> destination) {
    std::size_t num_read = 0;
    while (num_read < destination.size()) {
      if (position_ == num_buffered_) refill();
      if (num_buffered_ == 0) break;
      const std::size_t count = std::min(destination.size() - num_read, num_buffered_ - position_);
      std::memcpy(destination.data() + num_read, buffer_.data() + position_, count);
      position_ += count;
      num_read += count;
    }
    return num_read;
  }

  std::size_t read_gzip(std::span<std::uint8_t> destination) {
    std::size_t num_read = 0;
    while (num_read < destination.size() && !finished_) {
      if (position_ == num_buffered_) refill();
      require(num_buffered_ > 0, ErrorCode::Io, kOperation, "'{}' is truncated gzip data",
              file.name());
      num_read += inflate_some(destination.subspan(num_read));
    }
    return num_read;
  }

  std::size_t inflate_some(std::span<std::uint8_t> destination) {
    z_stream& stream = inflater_->stream;
    stream.next_in = buffer_.data() + position_;
    stream.avail_in = static_cast<uInt>(num_buffered_ - position_);
    const auto count = static_cast<uInt>(std::min(destination.size(), std::size_t{1} << 30));
    stream.next_out = destination.data();
    stream.avail_out = count;
    const int status = inflate(&stream, Z_NO_FLUSH);
    require(status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR, ErrorCode::Io,
            kOperation, "'{}' is corrupt gzip data: {}", file.name(),
            stream.msg == nullptr ? "zlib gives no reason" : stream.msg);
    position_ = num_buffered_ - stream.avail_in;
    if (status == Z_STREAM_END) start_next_member();
    return count - stream.avail_out;
  }

  void start_next_member() {
    if (position_ == num_buffered_) refill();
    if (num_buffered_ == 0) {
      finished_ = true;
    } else {
      inflateReset(&inflater_->stream);
    }
  }

  std::vector<std::uint8_t> buffer_ = std::vector<std::uint8_t>(kBufferBytes);
  std::size_t position_ = 0;
  std::size_t num_buffered_ = 0;
  std::unique_ptr<Inflater> inflater_;  // null for a plain file
  bool finished_ = false;               // gzip: the last member ended
};

ByteSource::ByteSource(const std::filesystem::path& path) : state_(std::make_unique<State>(path)) {}
ByteSource::~ByteSource() = default;

std::size_t ByteSource::read(std::span<std::uint8_t> destination) {
  return state_->read(destination);
}

std::uint64_t ByteSource::max_content_bytes() const {
  const std::uint64_t file_bytes = state_->file.num_bytes();
  return state_->is_gzip() ? file_bytes * kMaxDeflateRatio : file_bytes;
}

const std::string& ByteSource::name() const {
  return state_->file.name();
}

}  // namespace lockstep::datasets
