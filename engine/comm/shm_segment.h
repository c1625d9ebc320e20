// A block of memory that the processes of one host share and that has no name in a file system: it
// vanishes with the last process that maps it, however that process ends.
//
// It is a memfd. The process that makes it publishes an address, "PID N"; others open
// /proc/PID/fd/N, which the kernel only allows to processes of the same user in the same PID
// namespace.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "engine/core/error.h"
#include "engine/core/files.h"

namespace lockstep::comm {

class ShmSegment {
 public:
  // Throws Error{Comm} if the system gives no memory.
  static ShmSegment create(std::size_t num_bytes) {
    FileDescriptor file(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file.is_open()) fail_system("memfd_create");
    // Sealed, so that no process can shrink memory that others have mapped.
    const bool is_sized = ftruncate(file.descriptor(), static_cast<off_t>(num_bytes)) == 0 &&
                          fcntl(file.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
    if (!is_sized) fail_system("cannot make a segment");
    std::string address = fmt::format("{} {}", getpid(), file.descriptor());
    return ShmSegment(std::move(file), num_bytes, std::move(address));
  }

  // The segment that create() made in this or another process.
  // Throws Error{Comm} if it cannot be opened or has another size: with its owner's name, the
  // reason, and what to do instead.
  static ShmSegment open(const std::string& address, std::size_t num_bytes,
                         const std::string& owner = "a rank") {
    int process = 0;
    int number = 0;
    require(std::sscanf(address.c_str(), "%d %d", &process, &number) == 2, ErrorCode::Comm,
            "shared memory", "'{}' is not the address of a segment", address);
    const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    require(file.is_open(), ErrorCode::Comm, "shared memory",
            "cannot open the segment of {} (process {}): {}; unless it has died: {}", owner,
            process, std::strerror(errno), kAdvice);
    struct stat status {};
    require(
        fstat(file.descriptor(), &status) == 0 && status.st_size == static_cast<off_t>(num_bytes),
        ErrorCode::Comm, "shared memory",
        "what {} (process {}) has open is not the segment that was announced; unless it has "
        "died: {}",
        owner, process, kAdvice);
    return ShmSegment(std::move(file), num_bytes, address);
  }

  ShmSegment(ShmSegment&& other) noexcept
      : file_(std::move(other.file_)),
        num_bytes_(other.num_bytes_),
        data_(std::exchange(other.data_, nullptr)),
        address_(std::move(other.address_)) {}

  ShmSegment& operator=(ShmSegment&&) = delete;
  ~ShmSegment() {
    if (data_ != nullptr) munmap(data_, num_bytes_);
  }

  // For open(); valid while this object lives.
  const std::string& address() const { return address_; }

  // Aligned to a page; zeros at first.
  std::byte* data() const { return data_; }

 private:
  static constexpr const char* kAdvice =
      "processes of one user in one PID namespace can share memory; TCP needs neither";

  [[noreturn]] static void fail_system(const char* what) {
    fail(ErrorCode::Comm, "shared memory", "{}: {}", what, std::strerror(errno));
  }

  ShmSegment(FileDescriptor file, std::size_t num_bytes, std::string address)
      : file_(std::move(file)), num_bytes_(num_bytes), address_(std::move(address)) {
    void* const mapping = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                               MAP_SHARED | MAP_NORESERVE, file_.descriptor(), 0);
    if (mapping == MAP_FAILED) fail_system("cannot map the segment");
    madvise(mapping, num_bytes, MADV_HUGEPAGE);  // only advice: a refusal changes nothing
    data_ = static_cast<std::byte*>(mapping);
  }

  FileDescriptor file_;
  std::size_t num_bytes_ = 0;
  std::byte* data_ = nullptr;
  std::string address_;
};

}  // namespace lockstep::comm
