// Files that are replaced whole or not at all.
//
// The bytes go to a temporary file in the same folder; commit() syncs it, renames it over the
// target and syncs the folder. A kill or a power cut at any instant leaves the old file or the new
// one, never a mixture. What a kill may leave behind besides is "<name>.partial-<pid>-<n>".
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string_view>

namespace lockstep::checkpoint {

// One file being written. A target that exists keeps its permissions; a symbolic link stays a link
// and what it points to is replaced. Devices and pipes (/dev/null) cannot be replaced: they are
// written directly.
class AtomicFile {
 public:
  // Opens the temporary file. Throws Error{Io} when the target cannot be written: no such folder,
  // no permission, a folder by that name.
  explicit AtomicFile(const std::filesystem::path& path);

  // Removes the temporary file unless commit() was called; the target is then as it was.
  ~AtomicFile();

  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends. Throws Error{Io}, for example when the disk is full.
  void write(std::span<const std::byte> bytes);

  // Makes what was written the target's content. Call it once, last. Throws Error{Io}.
  void commit();

 private:
  [[noreturn]] void fail_with_errno(std::string_view what) const;
  void close_and_remove_temporary() noexcept;

  std::filesystem::path target_;
  std::filesystem::path temporary_;  // empty when the target is written directly
  int descriptor_ = -1;
};

// AtomicFile for content that is already in memory.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Finds out before the work starts whether its result could be saved at path. Leaves everything as
// it was. Throws Error{Io} that says why not.
void check_writable(const std::filesystem::path& path);

}  // namespace lockstep::checkpoint
