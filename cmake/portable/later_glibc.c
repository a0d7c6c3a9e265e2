// Functions that glibc has since a version later than 2.28, for programs that are compiled with a later
// glibc and linked for 2.28 (scripts/portable-libraries). Debian's libstdc++.a, libgcc_eh.a and libpq.a
// call them too. All else that glibc got later is a new version of a function that 2.28 has under the same
// name, and the linker takes the version of 2.28.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Hidden, so that no other library of the process takes these in place of its glibc's.
#define LATER __attribute__((visibility("hidden")))

// Since 2.32. False is always right: then libstdc++ counts references atomically.
LATER char __libc_single_threaded = 0;

// Since 2.30.
LATER pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// Since 2.36.
LATER uint32_t arc4random(void) {
  uint32_t value;
  while (getrandom(&value, sizeof value, 0) != (ssize_t)sizeof value) {
    if (errno != EINTR) abort();  // As glibc does if the system has no random numbers.
  }
  return value;
}

// The time of `clock` as a time of CLOCK_REALTIME: libstdc++ does the same where glibc is too old for the
// two functions below. A step of the system time during the wait moves its end.
static struct timespec as_realtime(clockid_t clock, const struct timespec* time) {
  if (clock == CLOCK_REALTIME) return *time;
  struct timespec now, realtime;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &realtime);
  struct timespec result = {realtime.tv_sec + (time->tv_sec - now.tv_sec),
                            realtime.tv_nsec + (time->tv_nsec - now.tv_nsec)};
  for (; result.tv_nsec < 0; result.tv_nsec += 1000000000) --result.tv_sec;
  for (; result.tv_nsec >= 1000000000; result.tv_nsec -= 1000000000) ++result.tv_sec;
  return result;
}

// Since 2.30.
LATER int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                 const struct timespec* end) {
  const struct timespec realtime = as_realtime(clock, end);
  return pthread_cond_timedwait(condition, mutex, &realtime);
}

// Since 2.30.
LATER int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const struct timespec* end) {
  const struct timespec realtime = as_realtime(clock, end);
  return pthread_mutex_timedlock(mutex, &realtime);
}

// Since 2.35: the object that contains an address, for unwinding. libgcc does not search by itself if it
// was compiled with a glibc that has this function.
struct search {
  uintptr_t address;
  struct dl_find_object* result;
};

static int search_object(struct dl_phdr_info* info, size_t size, void* data) {
  (void)size;
  struct search* search = data;
  uintptr_t start = UINTPTR_MAX, end = 0;
  const void* eh_frame = NULL;
  int contains = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &info->dlpi_phdr[i];
    const uintptr_t from = info->dlpi_addr + header->p_vaddr, to = from + header->p_memsz;
    if (header->p_type == PT_GNU_EH_FRAME) eh_frame = (const void*)from;
    if (header->p_type != PT_LOAD) continue;
    if (from < start) start = from;
    if (to > end) end = to;
    contains |= from <= search->address && search->address < to;
  }
  if (!contains || eh_frame == NULL) return 0;
  *search->result = (struct dl_find_object){.dlfo_map_start = (void*)start,
                                            .dlfo_map_end = (void*)end,
                                            .dlfo_eh_frame = (void*)eh_frame};
  return 1;
}

LATER int _dl_find_object(void* address, struct dl_find_object* result) {
  struct search search = {(uintptr_t)address, result};
  return dl_iterate_phdr(search_object, &search) == 1 ? 0 : -1;
}
