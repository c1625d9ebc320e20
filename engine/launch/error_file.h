// Why a rank ended, in a file that its launcher names: TORCHELASTIC_ERROR_FILE. torchrun shows it
// in its summary for ranks of ours, and `lockstep run` says it for ranks of others, as those that
// torch's @record watches over. The format is that of torch.distributed.elastic:
//
//   {"message": {"message": "...", "extraInfo": {"py_callstack": "...", "timestamp":
//   "1700000000"}}}
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/launch/environment.h"

namespace lockstep::launch {

inline constexpr const char* kErrorFileVariable = "TORCHELASTIC_ERROR_FILE";

// Writes the message of the error that ends this process; nothing where no launcher asks for it, or
// the file cannot be written.
void write_error_file(const Environment& environment, std::string_view message) noexcept;

// The message in such a file, in one line; "" where there is none, or it is none.
std::string read_error_file(const std::filesystem::path& path) noexcept;

// Removes such a folder with its files; "": none.
void remove_error_folder(const std::string& path) noexcept;

// A folder for the error files of a group's ranks, which goes with this object. At first it has a
// name alone: who makes it is a process that others look after.
class ErrorFolder {
 public:
  ErrorFolder();
  ~ErrorFolder();
  ErrorFolder(const ErrorFolder&) = delete;
  ErrorFolder& operator=(const ErrorFolder&) = delete;

  const std::string& path() const { return path_; }
  // Says whether there is room for it; else the ranks are not asked.
  bool make() const noexcept;

 private:
  std::string path_;
};

}  // namespace lockstep::launch
