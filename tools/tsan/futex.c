// Tells ThreadSanitizer about synchronisation by futex(2).
//
// std's locks, condition variables and parked threads wait in the kernel, by futex(2). Rust's prebuilt std is not instrumented, so the
// sanitizer misses that a thread's actions before it wakes another happen before the other's next actions, and reports races. Linked into
// the tests, this intercepts libc's syscall(2), which std calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

void __tsan_acquire(void *address);
void __tsan_release(void *address);

typedef long (*system_call)(long number, ...);

long syscall(long number, ...) {
  static system_call libc;
  system_call next = __atomic_load_n(&libc, __ATOMIC_RELAXED);
  if (!next) {
    next = (system_call)dlsym(RTLD_NEXT, "syscall");
    __atomic_store_n(&libc, next, __ATOMIC_RELAXED);
  }
  long given[6];
  va_list rest;
  va_start(rest, number);
  for (int i = 0; i < 6; i++) given[i] = va_arg(rest, long);
  va_end(rest);

  int command = number == SYS_futex ? (int)given[1] & FUTEX_CMD_MASK : -1;
  void *address = (void *)given[0];
  if (command == FUTEX_WAKE || command == FUTEX_WAKE_BITSET) __tsan_release(address);
  long answer = next(number, given[0], given[1], given[2], given[3], given[4], given[5]);
  int error = errno;
  if (command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET) {
    if (answer == -1 && error == EAGAIN) usleep(1000); // the waking thread may not have reached its futex call yet
    __tsan_acquire(address);
  }
  errno = error;
  return answer;
}

// std uses a fence before the last owner of an Arc frees its content, but the sanitizer does not support fences: so each release of an
// Arc also acquires the earlier ones.
typedef unsigned long long number64;
number64 __real___tsan_atomic64_fetch_sub(volatile number64 *at, number64 by, int order);
number64 __wrap___tsan_atomic64_fetch_sub(volatile number64 *at, number64 by, int order) {
  return __real___tsan_atomic64_fetch_sub(at, by, order == __ATOMIC_RELEASE ? __ATOMIC_ACQ_REL : order);
}

// A contended lock of std is taken inside std, where the sanitizer does not see it. Its release is inlined into the code that is seen: so
// each release of a lock also acquires the earlier ones.
typedef unsigned int number32;
number32 __real___tsan_atomic32_exchange(volatile number32 *at, number32 to, int order);
number32 __wrap___tsan_atomic32_exchange(volatile number32 *at, number32 to, int order) {
  return __real___tsan_atomic32_exchange(at, to, order == __ATOMIC_RELEASE ? __ATOMIC_ACQ_REL : order);
}
