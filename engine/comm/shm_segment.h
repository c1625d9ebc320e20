// A block of memory that the processes of one host share and that has no name in a file system: it
// vanishes with the last process that maps it, however that process ends.
//
// It is a memfd. The process that makes it publishes an address, "PID N"; others open
// /proc/PID/fd/N, which the kernel only allows to processes of the same user in the same PID
// namespace.
#pragma once

#include <cstddef>
#include <string>

#include "engine/core/files.h"

namespace lockstep::comm {

class ShmSegment {
 public:
  // Throws Error{Comm} if the system gives no memory.
  static ShmSegment create(std::size_t num_bytes);

  // The segment that create() made in this or another process.
  // Throws Error{Comm} if it cannot be opened or has another size: with its owner's name, the
  // reason, and what to do instead.
  static ShmSegment open(const std::string& address, std::size_t num_bytes,
                         const std::string& owner = "a rank");

  ShmSegment(ShmSegment&& other) noexcept;
  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment();

  // For open(); valid while this object lives.
  const std::string& address() const { return address_; }

  // Aligned to a page; zeros at first.
  std::byte* data() const { return data_; }
  std::size_t num_bytes() const { return num_bytes_; }

 private:
  ShmSegment(FileDescriptor file, std::size_t num_bytes, std::string address);

  FileDescriptor file_;
  std::size_t num_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::string address_;
};

}  // namespace lockstep::comm
