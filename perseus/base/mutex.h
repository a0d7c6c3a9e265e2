// A mutex that clang's thread-safety analysis understands (-Wthread-safety, an error in the builds
// that use clang), so that what a lock guards is written where it is checked:
//
//   Mutex mutex_;
//   int count_ PERSEUS_GUARDED_BY(mutex_) = 0;
//   ...
//   const MutexLock lock(mutex_);
//   ++count_;
#pragma once

#include <mutex>

#if defined(__clang__)
#define PERSEUS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PERSEUS_THREAD_ANNOTATION(x)
#endif

// Of a variable: only to be touched with the mutex held.
#define PERSEUS_GUARDED_BY(mutex) PERSEUS_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: only to be called with the mutex held, or without it.
#define PERSEUS_REQUIRES(mutex) PERSEUS_THREAD_ANNOTATION(requires_capability(mutex))
#define PERSEUS_EXCLUDES(mutex) PERSEUS_THREAD_ANNOTATION(locks_excluded(mutex))

namespace perseus {

class PERSEUS_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  void lock() PERSEUS_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void unlock() PERSEUS_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

class PERSEUS_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) PERSEUS_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() PERSEUS_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

}  // namespace perseus
