// A library that is preloaded into the agent. It shifts the wall clock that the agent sees by the
// seconds in FAULTS_CLOCK_FILE. This file may change at any time. The library changes neither the
// machine's clock nor any other clock.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

using Shift = std::atomic<std::int64_t>;

const Shift* MapShift() {
  const char* const path = std::getenv("FAULTS_CLOCK_FILE");
  const int file = path == nullptr ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* const memory = mmap(nullptr, sizeof(Shift), PROT_READ, MAP_SHARED, file, 0);
  close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<const Shift*>(memory);
}

std::int64_t ShiftNow() {
  static const Shift* const shift = MapShift();
  return shift == nullptr ? 0 : shift->load();
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* now) {
  const long failed = syscall(SYS_clock_gettime, clock, now);
  if (failed == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    now->tv_sec += ShiftNow();
  }
  return static_cast<int>(failed);
}

int gettimeofday(timeval* __restrict now, void* __restrict) {
  timespec precise{};
  const int failed = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return failed;
}

time_t time(time_t* seconds) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (seconds != nullptr) *seconds = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
