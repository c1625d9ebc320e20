// A file read front to back; gzip is decompressed on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

struct gzFile_s;  // zlib's open file

namespace lockstep::datasets {

// zlib recognises gzip by its first bytes, not by its name, and verifies its checksums.
class ByteSource {
 public:
  // Throws Error{Io} if the file is missing or cannot be opened.
  explicit ByteSource(const std::filesystem::path& path);

  // Fills destination as far as the content reaches and returns the number of bytes, which is less
  // than destination.size() only at the end.
  // Throws Error{Io} for gzip data that is corrupt or truncated, and for read errors.
  std::size_t read(std::span<std::uint8_t> destination);

  // The most content that a file of this size can hold: the size itself, or for gzip the size times
  // deflate's best ratio. It limits what a header can make a reader allocate.
  std::uint64_t max_content_bytes() const;

  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(gzFile_s* file) const;
  };

  std::string name_;
  std::uint64_t file_bytes_ = 0;
  std::unique_ptr<gzFile_s, Close> file_;
};

// The folder of a file of this name, in `folder` or up to four levels below it: a hint for an error
// message. Looks at no more than ten thousand entries.
std::optional<std::filesystem::path> folder_below(const std::filesystem::path& folder,
                                                  std::string_view file);

}  // namespace lockstep::datasets
