#include "tutorials/labs/host/system_calls.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/core/error.h"

namespace lab {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "lab_host knows the system calls of x86-64 and of 64-bit ARM"
#endif

constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
constexpr std::uint32_t kMissing = SECCOMP_RET_ERRNO | ENOSYS;  // libc then takes an older call

// Calls whose arguments do not matter.
constexpr long kAllowed[] = {
    // what it has open
    SYS_read,
    SYS_write,
    SYS_readv,
    SYS_writev,
    SYS_pread64,
    SYS_close,
    SYS_fstat,
    SYS_newfstatat,
    SYS_lseek,
    SYS_readlinkat,
    SYS_faccessat,
    SYS_getdents64,
    SYS_ppoll,
    // memory
    SYS_mmap,
    SYS_mprotect,
    SYS_munmap,
    SYS_mremap,
    SYS_brk,
    SYS_madvise,
    SYS_membarrier,
    // threads and waiting
    SYS_futex,
    SYS_set_robust_list,
    SYS_get_robust_list,
    SYS_set_tid_address,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_getcpu,
    SYS_nanosleep,
    SYS_clock_nanosleep,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    // signals to itself
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    // what it can know
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_gettimeofday,
    SYS_getrusage,
    SYS_times,
    SYS_getpid,
    SYS_getppid,
    SYS_gettid,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
    SYS_uname,
    SYS_sysinfo,
    SYS_getrandom,
#ifdef SYS_time
    SYS_time,
#endif
#ifdef SYS_poll
    SYS_poll,
#endif
#ifdef SYS_stat
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
#endif
};

class Filter {
 public:
  Filter() {
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch));
    jump(BPF_JEQ, kArchitecture, 1, 0);
    give(kRefuse);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr));
  }

  void answer(long number, std::uint32_t verdict) {
    jump(BPF_JEQ, static_cast<std::uint32_t>(number), 0, 1);
    give(verdict);
  }
  // Allowed if the argument is the value.
  void allow_if_equal(long number, std::size_t argument, std::uint32_t value) {
    on_argument(number, argument, BPF_JEQ, value, SECCOMP_RET_ALLOW, kRefuse);
  }
  // Allowed if the argument has some of the bits; or has none of them.
  void allow_if_any(long number, std::size_t argument, std::uint32_t bits) {
    on_argument(number, argument, BPF_JSET, bits, SECCOMP_RET_ALLOW, kRefuse);
  }
  void allow_if_none(long number, std::size_t argument, std::uint32_t bits) {
    on_argument(number, argument, BPF_JSET, bits, kRefuse, SECCOMP_RET_ALLOW);
  }

  void install() {
    give(kRefuse);
    const sock_fprog program{static_cast<unsigned short>(code_.size()), code_.data()};
    const int result = ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
    lockstep::require(result == 0, lockstep::ErrorCode::Io, "lab_host",
                      "this kernel filters no system calls (seccomp), so a submission cannot be "
                      "locked in: {}",
                      std::strerror(errno));
  }

 private:
  void add(int code, std::size_t value) {
    code_.push_back({static_cast<unsigned short>(code), 0, 0, static_cast<std::uint32_t>(value)});
  }
  void jump(int comparison, std::uint32_t value, unsigned char if_true, unsigned char if_false) {
    code_.push_back(
        {static_cast<unsigned short>(BPF_JMP | comparison | BPF_K), if_true, if_false, value});
  }
  void give(std::uint32_t verdict) { add(BPF_RET | BPF_K, verdict); }
  // Of the argument's lower half, which comes first on the machines above.
  void on_argument(long number, std::size_t argument, int comparison, std::uint32_t value,
                   std::uint32_t if_true, std::uint32_t if_false) {
    jump(BPF_JEQ, static_cast<std::uint32_t>(number), 0, 4);
    add(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 8 * argument);
    jump(comparison, value, 0, 1);
    give(if_true);
    give(if_false);
  }

  std::vector<sock_filter> code_;
};

}  // namespace

void restrict_system_calls() {
  Filter filter;
  for (const long number : kAllowed) filter.answer(number, SECCOMP_RET_ALLOW);
  constexpr std::uint32_t kWriting = O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND;
  filter.allow_if_none(SYS_openat, 2, kWriting);
#ifdef SYS_open
  filter.allow_if_none(SYS_open, 1, kWriting);
#endif
  filter.allow_if_any(SYS_clone, 0, CLONE_THREAD);
  filter.answer(SYS_clone3, kMissing);  // its flags are in memory, which no filter reads
  filter.allow_if_equal(SYS_tgkill, 0, static_cast<std::uint32_t>(::getpid()));  // abort()
  filter.allow_if_equal(SYS_prlimit64, 0, 0);
#ifdef SYS_statx
  filter.answer(SYS_statx, kMissing);
#endif
  filter.install();
}

}  // namespace lab
