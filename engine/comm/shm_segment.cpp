#include "engine/comm/shm_segment.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/core/error.h"

namespace lockstep::comm {
namespace {

// The first page: the segment's secret number. Byte h of the file is also the lock of holder h.
constexpr std::size_t kFirstPage = 4096;

constexpr const char* kAdvice =
    "processes of one user in one PID namespace can share memory; --transport tcp needs neither";

[[noreturn]] void fail_system(const char* what) {
  fail(ErrorCode::Comm, "shared memory", "{}: {}", what, std::strerror(errno));
}

// A description of the file of its own, so that locks of two ranks in one process do not merge.
FileDescriptor reopen(const std::string& path) {
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

flock lock_of(int holder) {
  flock lock{};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = holder;
  lock.l_len = 1;
  return lock;
}

}  // namespace

ShmSegment::ShmSegment(FileDescriptor file, std::size_t num_bytes, std::string address)
    : file_(std::move(file)), num_bytes_(num_bytes), address_(std::move(address)) {
  void* const mapping = mmap(nullptr, kFirstPage + num_bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_NORESERVE, file_.descriptor(), 0);
  if (mapping == MAP_FAILED) fail_system("cannot map the segment");
  madvise(mapping, kFirstPage + num_bytes, MADV_HUGEPAGE);  // advice: a refusal changes nothing
  mapping_ = static_cast<std::byte*>(mapping);
  data_ = mapping_ + kFirstPage;
}

ShmSegment::ShmSegment(ShmSegment&& other) noexcept
    : file_(std::move(other.file_)),
      num_bytes_(other.num_bytes_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      address_(std::move(other.address_)) {}

ShmSegment::~ShmSegment() {
  if (mapping_ != nullptr) munmap(mapping_, kFirstPage + num_bytes_);
}

ShmSegment ShmSegment::create(std::size_t num_bytes) {
  const FileDescriptor first(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!first.is_open()) fail_system("memfd_create");
  // Sealed, so that no process can cut off a piece that others have mapped.
  const bool is_sized =
      ftruncate(first.descriptor(), static_cast<off_t>(kFirstPage + num_bytes)) == 0 &&
      fcntl(first.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0;
  FileDescriptor file;
  if (is_sized) file = reopen(fmt::format("/proc/self/fd/{}", first.descriptor()));
  if (!file.is_open()) fail_system("cannot make a segment");
  std::uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) fail_system("getrandom");
  std::string address = fmt::format("{} {} {}", getpid(), file.descriptor(), number);
  ShmSegment segment(std::move(file), num_bytes, std::move(address));
  std::memcpy(segment.mapping_, &number, sizeof number);
  return segment;
}

ShmSegment ShmSegment::open(const std::string& address, std::size_t num_bytes,
                            const std::string& owner) {
  int process = 0;
  int number_of_file = 0;
  unsigned long long number = 0;
  require(std::sscanf(address.c_str(), "%d %d %llu", &process, &number_of_file, &number) == 3,
          ErrorCode::Comm, "shared memory", "'{}' is not the address of a segment", address);
  FileDescriptor file = reopen(fmt::format("/proc/{}/fd/{}", process, number_of_file));
  require(file.is_open(), ErrorCode::Comm, "shared memory",
          "cannot open the segment of {} (process {}): {}; unless it has died: {}", owner, process,
          std::strerror(errno), kAdvice);
  struct stat status {};
  const bool has_size = fstat(file.descriptor(), &status) == 0 &&
                        status.st_size == static_cast<off_t>(kFirstPage + num_bytes);
  std::uint64_t found = 0;
  if (!has_size || pread(file.descriptor(), &found, sizeof found, 0) != sizeof found ||
      found != number) {
    fail(ErrorCode::Comm, "shared memory",
         "what {} (process {}) has open is not the segment that was announced; unless it has died: "
         "{}",
         owner, process, kAdvice);
  }
  return ShmSegment(std::move(file), num_bytes, address);
}

bool ShmSegment::hold(int holder) {
  flock lock = lock_of(holder);
  return fcntl(file_.descriptor(), F_OFD_SETLK, &lock) == 0;
}

bool ShmSegment::is_held(int holder) const {
  flock lock = lock_of(holder);
  return fcntl(file_.descriptor(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace lockstep::comm
