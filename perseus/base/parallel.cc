#include "perseus/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace perseus {

void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;              // Guards `exception`.
  std::exception_ptr exception;  // The first one.
  const auto work_on = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        next = count;
        const std::lock_guard lock(mutex);
        if (!exception) exception = std::current_exception();
      }
    }
  };
  {
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::vector<std::jthread> helpers;
    try {
      for (std::size_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(work_on);
    } catch (const std::system_error&) {
      // The existing threads do all the work.
    }
    work_on();
  }
  if (exception) std::rethrow_exception(exception);
}

}  // namespace perseus
