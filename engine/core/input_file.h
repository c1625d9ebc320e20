// The one way to read a file that a user gave.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// A regular file, read front to back. Its size is known, so that what its header promises can be
// checked before memory is taken for it.
class InputFile {
 public:
  // operation is the tag of the errors, such as "idx"; it must outlive the object.
  // Throws Error{Io} that names the file: missing, no permission, a folder, a pipe or a device.
  InputFile(const std::filesystem::path& path, std::string_view operation);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Fills destination as far as the file reaches and returns the number of bytes: fewer than
  // destination.size() only at the end. Throws Error{Io} for read errors.
  std::size_t read(std::span<std::byte> destination);

  // The same, and Error{Io} when the file ends before.
  void read_exactly(std::span<std::byte> destination);

  // Begins again at the first byte.
  void rewind();

  // When it was opened.
  std::uint64_t num_bytes() const { return num_bytes_; }
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void fail_with_errno(std::string_view what, int reason) const;

  std::string name_;
  std::string_view operation_;
  int descriptor_ = -1;
  std::uint64_t num_bytes_ = 0;
};

// All of a file as text. Throws Error{Io} as InputFile.
std::string read_text_file(const std::filesystem::path& path, std::string_view operation);

}  // namespace lockstep
