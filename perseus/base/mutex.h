// A mutex for clang's thread-safety analysis (-Wthread-safety). A variable names the mutex that
// guards it, and a clang build fails if code uses the variable without the lock:
//
//   Mutex mutex_;
//   int count_ PERSEUS_GUARDED_BY(mutex_) = 0;
//   ...
//   const MutexLock lock(mutex_);
//   ++count_;
//
// A std::condition_variable_any waits on the Mutex. The lambda of a condition names its mutex:
//
//   changed_.wait_for(mutex_, timeout, [this]() PERSEUS_REQUIRES(mutex_) { return count_ > 0; });
#pragma once

#include <mutex>

#if defined(__clang__)
#define PERSEUS_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define PERSEUS_THREAD_ANNOTATION(x)
#endif

// For a variable: code may use it only with the mutex held.
#define PERSEUS_GUARDED_BY(mutex) PERSEUS_THREAD_ANNOTATION(guarded_by(mutex))
// For a pointer: code may use what it points to only with the mutex held.
#define PERSEUS_POINTEE_GUARDED_BY(mutex) PERSEUS_THREAD_ANNOTATION(pt_guarded_by(mutex))
// For a function: code may call it only with the mutex held (REQUIRES) or not held (EXCLUDES).
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
