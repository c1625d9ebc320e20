#include "tests/emulated_gpu/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

// void emulated_gpu_switch(void** saved_stack_pointer, void* stack_pointer)
// pushes what the calling convention lets a function keep, changes the stack, and pops it there.
extern "C" void emulated_gpu_switch(void** saved_stack_pointer, void* stack_pointer);
// Calls the function in the first popped register with the second as its argument.
extern "C" void emulated_gpu_first_switch();

#if defined(__x86_64__)
asm(R"(
.text
.globl emulated_gpu_switch
.type emulated_gpu_switch, @function
emulated_gpu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emulated_gpu_switch, .-emulated_gpu_switch
.globl emulated_gpu_first_switch
.type emulated_gpu_first_switch, @function
emulated_gpu_first_switch:
  movq %r12, %rdi
  callq *%rbx
  ud2
.size emulated_gpu_first_switch, .-emulated_gpu_first_switch
)");
#else
#error "the emulated GPU switches stacks on x86-64 only"
#endif

namespace emulated_gpu {
namespace {

constexpr std::size_t kStackBytes = 512 * 1024;  // a kernel touches a few pages
constexpr std::size_t kGuardBytes = 64 * 1024;   // at least a page on every system

// The registers that the first emulated_gpu_switch to a new stack pops, and where it then goes.
void* prepare_stack(void* top, void (*function)(Fiber*), Fiber* fiber) {
  auto** words = static_cast<void**>(top);
  words -= 7;  // r15 r14 r13 r12 rbx rbp, the return address; calls then begin 8 below a multiple
  for (int i = 0; i < 7; ++i) words[i] = nullptr;  // of 16, as the calling convention wants it
  words[3] = fiber;
  words[4] = reinterpret_cast<void*>(function);
  words[6] = reinterpret_cast<void*>(&emulated_gpu_first_switch);
  return words;
}

}  // namespace

Fiber::Fiber(void (*entry)(void*), void* argument) : entry_(entry), argument_(argument) {
  void* memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED || mprotect(memory, kGuardBytes, PROT_NONE) != 0) {
    std::fputs("emulated GPU: no memory for the stack of a thread\n", stderr);
    std::abort();
  }
  memory_ = memory;
  stack_pointer_ =
      prepare_stack(static_cast<char*>(memory) + kGuardBytes + kStackBytes, &Fiber::start, this);
}

Fiber::~Fiber() {
  if (memory_ != nullptr) munmap(memory_, kGuardBytes + kStackBytes);
}

void Fiber::switch_from(Fiber& from) {
  emulated_gpu_switch(&from.stack_pointer_, stack_pointer_);
}

void Fiber::start(Fiber* fiber) {
  fiber->entry_(fiber->argument_);
  std::abort();
}

}  // namespace emulated_gpu
