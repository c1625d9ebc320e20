// A file read front to back, decompressed on the way if it is gzip.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

namespace lockstep::datasets {

// Whether a file is gzip is decided by its first bytes, not by its name. gzip's checksums are
// verified, concatenated members are read as one stream, and bytes after the last one are an error.
class ByteSource {
 public:
  // Throws Error{Io} when the file is missing or cannot be opened.
  explicit ByteSource(const std::filesystem::path& path);
  ~ByteSource();
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  // Fills destination as far as the content reaches and returns the number of bytes: fewer than
  // destination.size() only at the end.
  // Throws Error{Io} for gzip data that is corrupt or truncated, and for read errors.
  std::size_t read(std::span<std::uint8_t> destination);

  // No file of this size can hold more content than that: the size itself, or for gzip the size
  // times deflate's best ratio. Bounds what a header can make a reader allocate.
  std::uint64_t max_content_bytes() const;

  const std::string& name() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::datasets
