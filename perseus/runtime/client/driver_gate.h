// Keeps the background threads of the client out of GPU drivers while the process forks.
//
// The problem. A fork copies the memory of the process, but only the thread that forks. If another
// thread is inside NVML at this moment, the child gets a copy of NVML's locks that nobody will ever
// release. Then the first call of NVML in the child hangs, for example torch.cuda.device_count() in
// a worker of a DataLoader. NVML has no fork handler. The client reads a counter that takes 3 ms,
// so without this gate, it was inside NVML for a part of all forks: 13 of 40 children hung (a
// stand-in for NVML with 2.4 ms a call and 100 calls a second).
//
// The gate. A thread is inside a driver only while an InDriver lives. A fork closes the gate, and
// waits until all other threads are outside. The gate opens after the fork, in the parent and in
// the child. The wait is bounded: a driver that hangs delays forks by kLongestForkDelay in all,
// because later forks do not wait for a call that an earlier fork gave up on.
//
// The gate has static memory, takes no lock and allocates nothing, because a child gets a copy of
// it, too. Thread safety: all calls may come from several threads at the same time.
#pragma once

#include "perseus/base/units.h"

namespace perseus::client {

inline constexpr Nanoseconds kLongestForkDelay = 100 * kMillisecond;

// A stay of this thread inside a driver. May be nested. Waits while the process forks.
class InDriver {
 public:
  InDriver();
  ~InDriver();
  InDriver(const InDriver&) = delete;
  InDriver& operator=(const InDriver&) = delete;
};

// The handlers of pthread_atfork(3) (live_sessions.cc registers them).
void CloseDriverGate();
void OpenDriverGateInParent();
void OpenDriverGateInChild();

}  // namespace perseus::client
