// The kernels of cuda_node.h, as PTX text that the driver compiles for its GPU.
//
// A load kernel runs until the host stops it. Warp 0 of block 0 does no work: its first thread
// copies (time, work) to a mailbox in host memory about every 10 us, and sets the flag that ends
// all blocks when the host asks for it, or when the time limit has passed. So a GPU never runs on
// after its host has died. The first thread of warp 1 of block 0 is a worker like the others, and
// notes the time (globaltimer, ns) and its iterations after each iteration. So reading host memory
// slows no worker, and the rate of iterations is proportional to the SM clock as far as the work
// is.
//
// Parameters of the load kernels: the mailbox (host memory, device address), the flag (device
// memory, 0), the limit in ns, and device memory of at least four bytes, which a kernel may name as
// the place of a result that it never stores.
//
// perseus_notify(address, value) writes a 64-bit value for the host.
//
// Requires compute capability 7.0 (nanosleep).
#pragma once

#include <string>

namespace perseus::qualifier {

// Offsets in the mailbox, in bytes.
inline constexpr int kMailboxStop = 0;       // u32, the host writes 1.
inline constexpr int kMailboxSequence = 8;   // u64, odd while a sample is written.
inline constexpr int kMailboxTime = 16;      // u64, globaltimer.
inline constexpr int kMailboxWork = 24;      // u64, iterations.
inline constexpr int kMailboxNotified = 64;  // u64, of perseus_notify.
inline constexpr int kMailboxBytes = 128;

inline constexpr const char* kComputeKernel = "perseus_compute";
inline constexpr const char* kBlockedKernel = "perseus_blocked";
inline constexpr const char* kNotifyKernel = "perseus_notify";

std::string KernelText();

}  // namespace perseus::qualifier
