// Runs the same function for many items on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace perseus {

// Calls work(0) to work(count - 1), each once, and returns when all calls have ended. The calls
// begin in this order, on as many threads as the machine has cores. So `work` must be thread safe.
// If the system refuses a thread, the existing threads do all the work. If a call throws, no
// further calls begin, and this function throws one of the exceptions.
void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace perseus
