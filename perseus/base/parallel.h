// Runs the same function many times on all cores.
//
// If the system refuses to create a thread, the existing threads do all the work. If a call throws,
// no further calls begin, and these functions throw one of the exceptions.
#pragma once

#include <cstddef>
#include <functional>

namespace perseus {

// Calls work(0) to work(count - 1), each once, and returns when all calls have ended. The calls
// begin in this order, on as many threads as the machine has cores. So `work` must be thread safe.
void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work);

// For tasks that create more tasks, such as the tasks of a queue. Calls work() once for each of
// `count` tasks, and once more for each task that a call adds. `work` returns how many tasks it
// added, and must be thread safe. At each call, at least one task is in the queue. Returns when no
// task is left.
void DrainOnAllCores(std::size_t count, const std::function<std::size_t()>& work);

}  // namespace perseus
