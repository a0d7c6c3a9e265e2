// Lets a background thread of the client leave the core of the training thread.
#pragma once

namespace perseus::client {

// Call it on a new background thread. A thread inherits the CPU affinity of the thread that starts
// it. If the training is pinned to exactly one core, a background thread would take its time from
// the training thread. So this function allows the calling thread all cores of the process's cgroup
// (cpuset). The kernel then prefers an idle core. A thread that may already use several cores keeps
// its affinity: somebody chose these cores, near the GPU for example. If the system refuses, the
// thread keeps its core.
void LeaveSingleCore();

}  // namespace perseus::client
