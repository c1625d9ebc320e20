#include "engine/runtime/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "engine/core/error.h"
#include "engine/runtime/memory_pool.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLarge = std::size_t{64} << 10;  // from here on a block is mapped by itself
constexpr std::size_t kSlab = std::size_t{2} << 20;
constexpr std::size_t kHugeBlock = std::size_t{2} << 20;
constexpr std::uint64_t kLeastMapped = std::uint64_t{64} << 20;
constexpr const char* kAdvice =
    "processes of one user in one PID namespace can share memory; TCP needs neither";

std::size_t rounded_up(std::size_t num_bytes, std::size_t unit) {
  return (num_bytes + unit - 1) / unit * unit;
}

// Blocks that are cut out of a slab have these sizes.
std::size_t small_size(std::size_t num_bytes) {
  return rounded_up(std::max<std::size_t>(num_bytes, 1), 64);
}

}  // namespace

// The memory of this process's tensors, and those that it had before it was forked. They stay until
// the process ends, since tensors of any age lie in them.
class TensorMemory final : public HostBlocks {
 public:
  static TensorMemory& instance() {
    static auto& memory = *new TensorMemory;
    return memory;
  }

  SharedMemory& start() {
    const std::lock_guard lock(mutex_);
    if (current_ == nullptr) {
      all_.push_back(std::make_unique<SharedMemory>());
      current_ = all_.back().get();
      take_host_blocks_from(*this);
    }
    return *current_;
  }

  void* allocate(std::size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    return current_ == nullptr ? nullptr : current_->allocate(num_bytes);
  }

  bool release(void* data, std::size_t num_bytes) override {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        all_, [&](const auto& memory) { return memory->release(data, num_bytes); });
  }

 private:
  TensorMemory() {
    pthread_atfork([] { instance().before_fork(); }, [] { instance().after_fork(); },
                   [] { instance().after_fork_in_child(); });
  }

  void before_fork() {
    mutex_.lock();
    for (const auto& memory : all_) memory->mutex_.lock();
  }
  void after_fork() {
    for (const auto& memory : all_) memory->mutex_.unlock();
    mutex_.unlock();
  }
  void after_fork_in_child() {
    current_ = nullptr;
    for (const auto& memory : all_) memory->part_after_fork();
    after_fork();
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<SharedMemory>> all_;
  SharedMemory* current_ = nullptr;
};

SharedMemory& SharedMemory::of_tensors() {
  return TensorMemory::instance().start();
}

void SharedMemory::part_after_fork() {
  for (const auto& [data, region] : regions_) {
    mmap(const_cast<std::byte*>(data), region.num_bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_FIXED, file_.descriptor(), static_cast<off_t>(region.offset));
  }
}

SharedMemory::SharedMemory()
    : file_(memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING)), end_(kPage) {
  // Sealed, so that no process can shrink memory that others have mapped.
  const bool is_made =
      file_.is_open() && fcntl(file_.descriptor(), F_ADD_SEALS, F_SEAL_SHRINK) == 0;
  require(is_made, ErrorCode::Comm, "shared memory",
          "memfd_create: {}; use the automatic "
          "transport or TCP",
          std::strerror(errno));
}

SharedMemory::~SharedMemory() {
  for (const auto& [data, region] : regions_) {
    munmap(const_cast<std::byte*>(data), region.num_bytes);
  }
}

std::string SharedMemory::address() const {
  return fmt::format("{} {}", getpid(), file_.descriptor());
}

void* SharedMemory::allocate(std::size_t num_bytes) {
  const std::lock_guard lock(mutex_);
  if (num_bytes >= kLarge) return map_region(rounded_up(num_bytes, kPage));
  const std::size_t size = small_size(num_bytes);
  std::vector<std::byte*>& free = small_[size];
  if (!free.empty()) {
    std::byte* const data = free.back();
    free.pop_back();
    return data;
  }
  if (slab_left_ < size) {
    slab_ = static_cast<std::byte*>(map_region(kSlab));
    slab_left_ = slab_ == nullptr ? 0 : kSlab;
    if (slab_ == nullptr) return nullptr;
  }
  slab_left_ -= size;
  return std::exchange(slab_, slab_ + size);
}

void* SharedMemory::map_region(std::size_t num_bytes) {
  std::vector<std::uint64_t>& unmapped = unmapped_[num_bytes];
  const bool is_new = unmapped.empty();
  if (is_new && num_bytes >= kHugeBlock) end_ = rounded_up(end_, kHugeBlock);
  const std::uint64_t offset = is_new ? end_ : unmapped.back();
  if (is_new && ftruncate(file_.descriptor(), static_cast<off_t>(end_ + num_bytes)) != 0) {
    return nullptr;
  }
  void* const data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          file_.descriptor(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) return nullptr;
  if (num_bytes >= kHugeBlock) madvise(data, num_bytes, MADV_HUGEPAGE);
  if (is_new) {
    end_ += num_bytes;
  } else {
    unmapped.pop_back();
  }
  regions_.emplace(static_cast<std::byte*>(data), Region{offset, num_bytes});
  return data;
}

bool SharedMemory::release(void* data, std::size_t num_bytes) {
  if (!offset_of(data)) return false;
  const std::lock_guard lock(mutex_);
  if (num_bytes < kLarge) {
    small_[small_size(num_bytes)].push_back(static_cast<std::byte*>(data));
    return true;
  }
  const auto found = regions_.find(static_cast<std::byte*>(data));
  const Region region = found->second;
  munmap(data, region.num_bytes);
  fallocate(file_.descriptor(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(region.offset), static_cast<off_t>(region.num_bytes));
  unmapped_[region.num_bytes].push_back(region.offset);
  regions_.erase(found);
  return true;
}

std::optional<std::uint64_t> SharedMemory::offset_of(const void* data) const {
  const std::lock_guard lock(mutex_);
  const auto* const place = static_cast<const std::byte*>(data);
  const auto after = regions_.upper_bound(place);
  if (after == regions_.begin()) return {};
  const auto& [begin, region] = *std::prev(after);
  const auto distance = static_cast<std::uint64_t>(place - begin);
  if (distance >= region.num_bytes) return {};
  return region.offset + distance;
}

MappedMemory::MappedMemory(const std::string& address, std::string owner)
    : owner_(std::move(owner)) {
  int process = 0;
  int number = 0;
  require(std::sscanf(address.c_str(), "%d %d", &process, &number) == 2, ErrorCode::Comm,
          "shared memory", "'{}' is not the address of memory", address);
  owner_ += fmt::format(" (process {})", process);
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  require(file_.is_open(), ErrorCode::Comm, "shared memory",
          "cannot open the memory of {}: {}; unless it has died: {}", owner_, std::strerror(errno),
          kAdvice);
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, num_bytes_);
}

std::byte* MappedMemory::at(std::uint64_t offset, std::size_t num_bytes) {
  if (offset + num_bytes > num_bytes_) map(offset + num_bytes);
  return data_ + offset;
}

// As far as the file reaches, at least to `end`. The size that is mapped doubles, so that a file
// that grows is mapped a few times.
void MappedMemory::map(std::uint64_t end) {
  struct stat status {};
  const bool is_there =
      fstat(file_.descriptor(), &status) == 0 && static_cast<std::uint64_t>(status.st_size) >= end;
  require(is_there, ErrorCode::Comm, "shared memory",
          "what {} has open is not the memory that it announced; unless it has died: {}", owner_,
          kAdvice);
  const std::uint64_t num_bytes = std::max(kLeastMapped, std::bit_ceil(end));
  void* const data = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                          file_.descriptor(), 0);
  require(data != MAP_FAILED, ErrorCode::Comm, "shared memory",
          "cannot map {} bytes of the memory of {}: {}; raise the limit of the address space "
          "(ulimit -v) or use TCP",
          num_bytes, owner_, std::strerror(errno));
  madvise(data, num_bytes, MADV_HUGEPAGE);  // only advice: a refusal changes nothing
  if (data_ != nullptr) munmap(data_, num_bytes_);
  data_ = static_cast<std::byte*>(data);
  num_bytes_ = num_bytes;
}

}  // namespace lockstep::runtime
