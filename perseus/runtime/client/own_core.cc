#include "perseus/runtime/client/own_core.h"

#include <sched.h>

namespace perseus::client {

void LeaveSingleCore() {
  cpu_set_t cores;
  // Fails on a machine with more cores than cpu_set_t has. 0: the calling thread.
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0 || CPU_COUNT(&cores) != 1) return;
  for (int core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &cores);
  // The kernel leaves out the cores that the cgroup does not allow.
  static_cast<void>(::sched_setaffinity(0, sizeof cores, &cores));
}

}  // namespace perseus::client
