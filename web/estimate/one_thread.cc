// perseus/base/parallel.h for WebAssembly, which has one thread here and no exceptions.
#include "perseus/base/parallel.h"

namespace perseus {

void ForEachOnAllCores(std::size_t count, const std::function<void(std::size_t)>& work) {
  for (std::size_t i = 0; i < count; ++i) work(i);
}

void DrainOnAllCores(std::size_t count, const std::function<std::size_t()>& work) {
  for (; count > 0; --count) count += work();
}

}  // namespace perseus
