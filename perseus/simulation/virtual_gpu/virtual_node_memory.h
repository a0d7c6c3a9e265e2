// The memory that the processes of a virtual node share: a file with a cell for each GPU.
//
// Thread safety: all calls may come from several threads and processes at a time.
//
// What a process that is killed at any instruction leaves behind:
//  1. A cell consists of two copies and a version. The last bit of the version says which copy
//     counts. An update changes the other copy, and then increments the version. This one store
//     publishes all of the update.
//  2. An update holds a robust mutex. After a death, the next owner gets EOWNERDEAD. It has nothing
//     to repair because of rule 1.
//  3. Sleeping processes wait for a change of the version. If a process dies between the store and
//     the wake-up, they stay asleep. So they check the version every kLongestSleep.
//  4. The file gets its name when it is complete (link()). So two processes that create it at the
//     same time both get the same file.
// A process that is stopped during an update is different: the others wait for it for kLongestWait,
// and then fail.
//
// A reader could work without the mutex, because there are two copies. But it would have to notice
// that two updates overtook it. An update takes microseconds, so the mutex is simpler and fast
// enough.
//
// Processes trust the file, as they trust a driver: a process that may write to it can make its
// readers fail in any way. It is created with the permissions that the umask leaves.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "perseus/base/clock.h"
#include "perseus/base/result.h"
#include "perseus/simulation/virtual_gpu/virtual_gpu.h"
#include "perseus/simulation/virtual_gpu/virtual_node_file.h"

namespace perseus::virtual_gpu {

// The faults that are injected into the driver of a GPU.
struct VirtualFaults {
  bool no_permission = false;   // Settings fail for lack of permission.
  bool is_gone = false;         // Every call fails, and all settings are lost.
  bool ignores_writes = false;  // Settings are accepted, but have no effect.
  int failing_calls = 0;        // How many further settings fail.
  Nanoseconds call_time = 0;    // How long a setting takes to answer, in virtual time.
  friend bool operator==(const VirtualFaults&, const VirtualFaults&) = default;
};

// What processes share about a GPU. It is trivially copyable.
struct VirtualCell {
  VirtualGpu gpu;
  VirtualFaults faults;
  std::uint64_t writes = 0;  // Settings that were accepted.
  pid_t worker = 0;          // The process that computes on it. 0: none.
};

class VirtualNodeMemory {
 public:
  // Opens the state file of that node. Creates it if it does not exist or is from an earlier boot.
  // Fails (kInput) if it is something else, or was made from another description.
  static Result<std::shared_ptr<VirtualNodeMemory>> Open(const VirtualNodeSpec& spec,
                                                         std::shared_ptr<Clock> clock);
  VirtualNodeMemory(const VirtualNodeMemory&) = delete;
  VirtualNodeMemory& operator=(const VirtualNodeMemory&) = delete;
  ~VirtualNodeMemory();

  const VirtualNodeSpec& spec() const { return spec_; }
  const std::shared_ptr<Clock>& clock() const { return clock_; }
  Nanoseconds Now() const;  // Virtual time, from 0 when the file was made.
  // Conversions between the clock's time and virtual time. ToReal returns the first moment at which
  // the virtual time is `time`.
  Nanoseconds ToVirtual(Nanoseconds real) const;
  Nanoseconds ToReal(Nanoseconds time) const;

  // Changes the cell completely or not at all. `change` receives the cell and the virtual time. If
  // it throws, nothing changes.
  Result<void> Update(int gpu, const std::function<void(VirtualCell&, Nanoseconds)>& change);

  struct Snapshot {
    VirtualCell cell;
    Nanoseconds now = 0;
    std::uint32_t version = 0;
  };
  // The current state. If the worker of the GPU has died, the GPU is stopped first.
  Result<Snapshot> Read(int gpu);
  // Returns when the cell's version differs from `version`, at `until` (virtual time), or earlier.
  void WaitWhile(int gpu, std::uint32_t version, Nanoseconds until);
  // `until` is virtual time.
  void SleepUntil(Nanoseconds until);

  // Makes this process the one that computes on the GPU, until the claim is destroyed or the
  // process ends. Fails (kSystem) if another process has the claim.
  class Claim {
   public:
    Claim(std::shared_ptr<VirtualNodeMemory> memory, int gpu, int fd);
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim();

   private:
    std::shared_ptr<VirtualNodeMemory> memory_;
    int gpu_;
    int fd_;
  };
  static Result<std::unique_ptr<Claim>> ClaimGpu(const std::shared_ptr<VirtualNodeMemory>& memory,
                                                 int gpu);

 private:
  struct Layout;
  struct Slot;
  class Guard;
  struct Opened;

  VirtualNodeMemory(VirtualNodeSpec spec, std::shared_ptr<Clock> clock, int fd, void* address);
  static Result<void> Create(const VirtualNodeSpec& spec, Nanoseconds anchor);
  static Result<Opened> OpenExisting(const VirtualNodeSpec& spec);
  static std::size_t SizeFor(int gpus);
  Slot& SlotOf(int gpu) const;
  Result<Snapshot> ReadAsItIs(int gpu);
  tl::unexpected<Error> StandsStill(int gpu, int error) const;
  bool IsClaimed(int gpu) const;

  VirtualNodeSpec spec_;
  std::shared_ptr<Clock> clock_;
  int fd_;
  void* address_;
};

}  // namespace perseus::virtual_gpu
