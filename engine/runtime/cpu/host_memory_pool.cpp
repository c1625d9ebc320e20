#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "engine/runtime/memory_pool.h"

namespace lockstep::runtime {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

// Bytes of the machine's memory. Linux promises more than it has and kills the process that then
// uses it; a request that can never be met is refused at once instead.
std::size_t physical_memory() {
  static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

class HostMemoryPool final : public MemoryPool {
 public:
  explicit HostMemoryPool(std::string description) : description_(std::move(description)) {}
  ~HostMemoryPool() override { release_cached(); }

 protected:
  void* system_allocate(std::size_t num_bytes) override {
    if (num_bytes > physical_memory()) return nullptr;
    if (num_bytes < kHugePage) return std::aligned_alloc(64, num_bytes);
    const std::size_t rounded = (num_bytes + kHugePage - 1) / kHugePage * kHugePage;
    void* data = std::aligned_alloc(kHugePage, rounded);
    if (data) madvise(data, rounded, MADV_HUGEPAGE);  // advice: a refusal changes nothing
    return data;
  }
  void system_release(void* data, std::size_t) override { std::free(data); }
  std::string description() const override { return description_; }
  std::size_t free_bytes() const override {
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  std::string description_;
};

}  // namespace

std::unique_ptr<MemoryPool> make_host_memory_pool(std::string description) {
  return std::make_unique<HostMemoryPool>(std::move(description));
}

}  // namespace lockstep::runtime
