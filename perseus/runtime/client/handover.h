// Passes values from one thread (the maker) to another (the user). Neither waits for the other. The
// user never allocates or frees memory. It returns each value to the maker, which frees it.
//
// T has a member `T* next` for this class. The user may use `next` while it owns the value.
//
// Thread safety: Offer and FreeRetired are for the maker's thread, Take and Retire for the user's.
#pragma once

#include <atomic>
#include <memory>

namespace perseus::client {

template <typename T>
class Handover {
 public:
  Handover() = default;
  Handover(const Handover&) = delete;
  Handover& operator=(const Handover&) = delete;
  ~Handover() {
    delete Take();
    FreeRetired();
  }

  // Whether the last offered value was not taken yet. Do not offer another one until then.
  bool IsWaiting() const { return offered_.load(std::memory_order_relaxed) != nullptr; }
  void Offer(std::unique_ptr<T> value) {
    delete offered_.exchange(value.release(), std::memory_order_acq_rel);
  }
  void FreeRetired() {
    T* retired = retired_.exchange(nullptr, std::memory_order_acquire);
    while (retired != nullptr) {
      const std::unique_ptr<T> freed(retired);
      retired = freed->next;
    }
  }

  // Returns null if no new value was offered. The user owns the value until it retires it.
  T* Take() {
    // An exchange takes 20 ns, a load almost nothing.
    if (offered_.load(std::memory_order_relaxed) == nullptr) return nullptr;
    return offered_.exchange(nullptr, std::memory_order_acq_rel);
  }
  void Retire(T* value) {
    if (value == nullptr) return;
    value->next = retired_.load(std::memory_order_relaxed);
    while (!retired_.compare_exchange_weak(value->next, value, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<T*> offered_ = nullptr;
  std::atomic<T*> retired_ = nullptr;
};

}  // namespace perseus::client
