// A fake CUDA driver and a fake NCCL. The driver runs the kernels of
// perseus/runtime/qualifier/kernels.h on threads. Each stream is a queue with a thread, so the host
// runs ahead. A load kernel counts at a given rate until its mailbox says stop. The fake knows only
// the host's side of the kernels. It neither reads nor checks their PTX.
//
// The fake fails where the real driver fails: for handles of another context than the current one,
// for addresses that were not allocated, and for peers that are connected twice. As on an H100, a
// small kernel does not start while every multiprocessor has a block of a load kernel. It starts
// when the load ends.
//
// NCCL moves no data. A collective is called for every GPU of one CommInitAll, with the same
// arguments, and inside one group. Where the real library would wait for ever, the fake reports
// invalid usage.
//
// This fake is a library of its own. The other fake driver (fake_cuda.h) has streams whose time a
// test advances.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fake_kernels {

inline constexpr int kSystemError = 2, kInvalidUsage = 5;  // ncclResult_t.

// The traits that all GPUs have.
struct GpuTraits {
  int multiprocessors = 108;
  int compute_capability = 8;
  bool ends_long_kernels = false;  // As a GPU that drives a display does.
  bool has_peers = true;           // The GPUs can access each other's memory.
};

// Resets the driver: these GPUs ("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"), no failures, and a
// rate of one iteration per microsecond. Requires that nothing is allocated and that nothing runs.
void Reset(const std::vector<std::string>& uuids, const GpuTraits& traits = {});
// Sets the iterations per nanosecond of all load kernels.
void SetRate(double rate);
// Makes one call of this entry point fail with this code, after `after` more calls.
void FailOnce(std::string_view entry_point, int code, int after = 0);
// Returns how often the entry point was called.
int Calls(std::string_view entry_point);
// Returns the number of contexts, modules, streams and allocations that were not freed, and of
// kernels that run.
int LiveResources();
int LiveCommunicators();

}  // namespace fake_kernels
