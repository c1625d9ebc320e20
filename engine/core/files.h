// Files of users: opened, read whole, and replaced either whole or not at all.
#pragma once

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// An open file, pipe, socket or event, which its owner's destructor closes.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}  // < 0: none
  ~FileDescriptor() { close(); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  void close() noexcept {
    if (is_open()) ::close(release());
  }
  // The caller closes it.
  int release() noexcept { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

// A regular file that a user gave, read front to back. Its size is known, so that claims in its
// header can be checked before memory is taken.
class InputFile {
 public:
  // operation is the tag of the errors, such as "idx"; it must outlive the object.
  // Throws Error{Io} that names the file: missing, no permission, a folder, a pipe or a device.
  InputFile(const std::filesystem::path& path, std::string_view operation);

  // Fills destination as far as the file reaches and returns the number of bytes, which is less
  // than destination.size() only at the end. Throws Error{Io} for read errors.
  std::size_t read(std::span<std::byte> destination);

  // The same, but throws Error{Io} if the file is too short.
  void read_exactly(std::span<std::byte> destination);

  // Goes back to the first byte.
  void rewind();

  // Its size when it was opened.
  std::uint64_t num_bytes() const { return num_bytes_; }
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void fail_with_errno(std::string_view what, int reason) const;

  std::string name_;
  std::string_view operation_;
  FileDescriptor file_;
  std::uint64_t num_bytes_ = 0;
};

// Reads a whole file as text. Throws Error{Io} as InputFile.
std::string read_text_file(const std::filesystem::path& path, std::string_view operation);

// A file being written, which is replaced whole or not at all: the bytes go to a temporary file in
// the same folder; commit() syncs and closes it, renames it over the target and syncs the folder. A
// kill or a power cut at any instant leaves the old file or the new one, never a mixture. A kill
// may also leave a file "<name>.partial-<pid>-<n>".
//
// A target that exists keeps its permissions. A symbolic link stays, and the file that it points to
// is replaced or made. Devices and pipes (/dev/null) cannot be replaced: they are written directly.
class AtomicFile {
 public:
  // Opens the temporary file. operation is the tag of the errors; it must outlive the object.
  // Throws Error{Io} if the target cannot be written: no such folder, no permission, a folder of
  // that name.
  explicit AtomicFile(const std::filesystem::path& path, std::string_view operation = "save");

  // Removes the temporary file unless commit() was called; the target is then unchanged.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error{Io}, for example if the disk is full or the limit of `ulimit -f` is
  // reached (without the signal SIGXFSZ, which would end the process).
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  // Makes everything written so far the target's content, unsynced; later writes appear there at
  // once. It is meant for a log, whose beginning is worth keeping.
  void publish();

  // Makes everything written the target's content. Call it once, at the end. Throws Error{Io}.
  void commit();

 private:
  [[noreturn]] void fail_with_errno(std::string_view what) const;
  void require_below_limit(std::size_t num_bytes) const;
  void close();

  std::string_view operation_;
  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty if the target is written directly
  bool has_limit_ = false;           // `ulimit -f` limits regular files
  FileDescriptor file_;
  std::size_t num_written_ = 0;
};

// AtomicFile for content that is already in memory.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Checks before the work starts that its result could be saved at path, and changes nothing. Throws
// Error{Io} that says why not.
void check_writable(const std::filesystem::path& path);

// A new folder in TMPDIR, which its destructor removes with all that is in it.
class TemporaryFolder {
 public:
  // Throws Error{Io} if no folder can be made there.
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// True if writing to both paths would write one file twice: two spellings, symbolic links, or names
// of one file. Neither needs to exist.
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace lockstep
