// A queue between two threads that never waits, allocates or enters the kernel: one thread pushes,
// one pops.
//
// Thread safety: Push and HasRoomFor belong to one thread at a time, Pop to another.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <type_traits>

namespace perseus::client {

template <typename T>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // `capacity` is a power of two. All memory is touched here, so that pushing meets no page fault.
  explicit Ring(std::size_t capacity) : mask_(capacity - 1), slots_(new T[capacity]()) {}

  bool HasRoomFor(std::size_t count) {
    const std::size_t pushed = pushed_.load(std::memory_order_relaxed);
    if (mask_ + 1 - (pushed - known_popped_) >= count) return true;
    known_popped_ = popped_.load(std::memory_order_acquire);
    return mask_ + 1 - (pushed - known_popped_) >= count;
  }
  // Returns false if the ring is full.
  bool Push(const T& value) {
    if (!HasRoomFor(1)) return false;
    const std::size_t pushed = pushed_.load(std::memory_order_relaxed);
    slots_[pushed & mask_] = value;
    pushed_.store(pushed + 1, std::memory_order_release);
    return true;
  }
  // Returns nullopt if the ring is empty.
  std::optional<T> Pop() {
    const std::size_t popped = popped_.load(std::memory_order_relaxed);
    if (popped == pushed_.load(std::memory_order_acquire)) return std::nullopt;
    const T value = slots_[popped & mask_];
    popped_.store(popped + 1, std::memory_order_release);
    return value;
  }

 private:
  // What the two threads write lies on cache lines of their own.
  alignas(64) std::atomic<std::size_t> pushed_ = 0;
  std::size_t known_popped_ = 0;  // The pushing thread's last look.
  alignas(64) std::atomic<std::size_t> popped_ = 0;
  alignas(64) const std::size_t mask_;
  const std::unique_ptr<T[]> slots_;
};

}  // namespace perseus::client
