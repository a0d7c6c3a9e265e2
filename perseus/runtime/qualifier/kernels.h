// The kernels of cuda_node.h, as PTX text that the driver compiles for its GPU.
//
// A load kernel runs until the host stops it. Warp 0 of block 0 does no work. Its first thread
// copies (time, work) to a mailbox in host memory about every 10 us. When the host asks for the
// end, or the time limit has passed, this thread sets a flag, and the flag ends all blocks. So no
// kernel runs much longer than its host. The first thread of warp 1 of block 0 is a worker like the
// others. After each iteration, it stores the time (globaltimer, ns) and its number of iterations.
// So no worker is slowed by reads of host memory, and the rate of iterations is proportional to the
// SM clock if the work is.
//
// Parameters of the load kernels: the mailbox (host memory, device address), the flag (device
// memory, 0), the limit in ns, and device memory of at least four bytes. A kernel may use the last
// one as the place of a result that it never stores.
//
// perseus_notify(address, value) writes a 64-bit value for the host.
//
// Requires compute capability 7.0 (nanosleep).
#pragma once

#include <string>

namespace perseus::qualifier {

// Offsets in the mailbox, in bytes, and the type of each value.
inline constexpr int kMailboxStop = 0;       // u32. The host writes 1.
inline constexpr int kMailboxSequence = 8;   // u64. Odd while a sample is written.
inline constexpr int kMailboxTime = 16;      // u64, globaltimer.
inline constexpr int kMailboxWork = 24;      // u64, iterations.
inline constexpr int kMailboxNotified = 64;  // u64. The value of perseus_notify.
inline constexpr int kMailboxBytes = 128;

inline constexpr const char* kComputeKernel = "perseus_compute";
inline constexpr const char* kBlockedKernel = "perseus_blocked";
inline constexpr const char* kNotifyKernel = "perseus_notify";

std::string KernelText();

}  // namespace perseus::qualifier
