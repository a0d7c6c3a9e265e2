// The same work on many things, on all cores.
#pragma once

#include <cstddef>
#include <functional>

namespace perseus {

// Calls work(0) to work(count - 1), each once and in this order of beginning, on as many threads as
// the machine has cores, and returns when all are done. `work` is called from several threads at a
// time. Where no more threads are to be had, those that there are do it all. If a call throws, no
// further ones begin, and one such exception is thrown here.
void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work);

}  // namespace perseus
