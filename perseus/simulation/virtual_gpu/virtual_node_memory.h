// The memory that the processes of a virtual node share: a file with a cell for each GPU.
//
// Thread safety: several threads and processes may make any calls at the same time.
//
// A process may be killed at any instruction. These rules keep the file valid:
//  1. A cell has two copies and a version. The last bit of the version selects the valid copy. An
//     update writes the other copy, and then increments the version with one store. Before this
//     store, the update has no effect. After it, the whole update has taken effect.
//  2. An update holds a robust mutex. If its process dies, the next one receives EOWNERDEAD. It has
//     nothing to repair, because of rule 1.
//  3. Processes sleep until the version changes. If a process dies between the store and the
//     wake-up, the others still sleep. So they look again every kLongestSleep.
//  4. The file gets its name when it is complete (link()). So two processes that create it at the
//     same time use the same file.
// If a process is stopped during an update, the others wait for kLongestWait and then fail.
//
// A reader without a lock could use the two copies, but it would have to notice if two updates
// happen during its read. An update takes microseconds, so the mutex costs little.
//
// The file is trusted, like a driver. A user who may write to it can make its readers fail in any
// way. The umask determines its permissions.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_file.h"

namespace perseus::virtual_gpu {

// The state of a GPU that the processes share. Trivially copyable.
struct VirtualCell {
  VirtualGpu gpu;
  std::uint64_t writes = 0;  // Accepted settings.
  pid_t worker = 0;          // The process that computes on the GPU; 0: none.
};

class VirtualNodeMemory {
 public:
  // Opens the state file of the node. Creates it if it does not exist or is from an earlier boot.
  // Fails if the file is something else, was created from another description, or is ahead of the
  // clock. The last case occurs if the file of the clock was replaced, but not the state. Then the
  // GPUs have already passed the times at which ranks would call them.
  static Result<std::shared_ptr<VirtualNodeMemory>> Open(const VirtualNodeSpec& spec,
                                                         std::shared_ptr<Clock> clock);
  VirtualNodeMemory(const VirtualNodeMemory&) = delete;
  VirtualNodeMemory& operator=(const VirtualNodeMemory&) = delete;
  ~VirtualNodeMemory();

  const VirtualNodeSpec& spec() const { return spec_; }
  const std::shared_ptr<Clock>& clock() const { return clock_; }
  Nanoseconds Now() const;  // Virtual time. 0 at the creation of the file.
  // Convert between the time of the clock and virtual time. ToReal returns the first moment of the
  // virtual time.
  Nanoseconds ToVirtual(Nanoseconds real) const;
  Nanoseconds ToReal(Nanoseconds time) const;

  // Changes the cell completely or not at all. `change` receives the virtual time. If it throws,
  // the cell stays as it was.
  Result<void> Update(int gpu, const std::function<void(VirtualCell&, Nanoseconds)>& change);

  struct Snapshot {
    VirtualCell cell;
    Nanoseconds now = 0;
    std::uint32_t version = 0;
  };
  // The state now. If the worker died, the GPU is idle.
  Result<Snapshot> Read(int gpu);
  // Returns when the version of the cell changes, at `until` (virtual time), or earlier.
  void WaitWhile(int gpu, std::uint32_t version, Nanoseconds until);

  // Makes this process the one that computes on the GPU, until the claim is destroyed or the
  // process ends. Fails if another process computes on it.
  class Claim {
   public:
    Claim(std::shared_ptr<VirtualNodeMemory> memory, int gpu, FileDescriptor file);
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim();

   private:
    std::shared_ptr<VirtualNodeMemory> memory_;
    int gpu_;
    FileDescriptor file_;  // Holds the claim.
  };
  static Result<std::unique_ptr<Claim>> ClaimGpu(const std::shared_ptr<VirtualNodeMemory>& memory,
                                                 int gpu);

 private:
  struct Layout;
  struct Slot;
  class Guard;
  struct Opened;

  VirtualNodeMemory(VirtualNodeSpec spec, std::shared_ptr<Clock> clock, FileDescriptor file,
                    void* address);
  static Result<void> Create(const VirtualNodeSpec& spec, Nanoseconds anchor);
  static Result<Opened> OpenExisting(const VirtualNodeSpec& spec);
  static std::size_t SizeFor(int gpus);
  Slot& SlotOf(int gpu) const;
  Result<Snapshot> ReadAsItIs(int gpu);
  bool IsAheadOfClock();
  tl::unexpected<Error> StoppedHolder(int gpu, int error) const;
  bool IsClaimed(int gpu) const;

  VirtualNodeSpec spec_;
  std::shared_ptr<Clock> clock_;
  FileDescriptor file_;
  void* address_;
};

}  // namespace perseus::virtual_gpu
