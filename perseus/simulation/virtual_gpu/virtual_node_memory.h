// The memory that the processes of a virtual node share: a file with a cell for each GPU.
//
// Thread safety: all calls may come from several threads and processes at a time.
//
// What a process that is killed at any instruction leaves behind:
//  1. A cell is two copies and a version; the version's last bit says which copy counts. An update
//     is made in the other copy, and the version is counted up last: one store, before which
//     nothing of the update is there, and after which all of it.
//  2. Who updates holds a robust mutex. The next one after a death is told so (EOWNERDEAD), and
//     has nothing to repair, by 1.
//  3. The version is what sleepers wait on. A death between the store and the wake-up leaves them
//     asleep, so they look again every kLongestSleep.
//  4. The file appears under its name when it is complete (link()), so two processes that make it
//  at
//     once end up with the same one.
// A process that is stopped within an update is another matter: others wait kLongestWait for it,
// then fail.
//
// Why a mutex, though two copies would do for a lock-free reader: a reader that is overtaken by two
// updates would have to notice; an update takes microseconds, and no one is in that much of a
// hurry.
//
// The file is trusted, as a driver is: whoever may write to it can make its readers fail in any
// way. It is made with the permissions that the umask leaves.
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

// What is made to go wrong with a GPU's driver.
struct VirtualFaults {
  bool no_permission = false;   // Settings want a privilege.
  bool is_gone = false;         // Every call fails; all settings are lost.
  bool ignores_writes = false;  // Settings are accepted, and nothing comes of them.
  int failing_calls = 0;        // So many settings fail, then no more.
  Nanoseconds call_time = 0;    // What a setting takes to answer; virtual time.
  friend bool operator==(const VirtualFaults&, const VirtualFaults&) = default;
};

// What the processes share of a GPU. Trivially copyable.
struct VirtualCell {
  VirtualGpu gpu;
  VirtualFaults faults;
  std::uint64_t writes = 0;  // Settings that were accepted.
  pid_t worker = 0;          // The process that computes here; 0 for none.
};

class VirtualNodeMemory {
 public:
  // The state file of that node, made if it is not there or was left by an earlier boot. Fails if
  // it is something else, or was made from another description.
  static Result<std::shared_ptr<VirtualNodeMemory>> Open(const VirtualNodeSpec& spec,
                                                         std::shared_ptr<Clock> clock);
  VirtualNodeMemory(const VirtualNodeMemory&) = delete;
  VirtualNodeMemory& operator=(const VirtualNodeMemory&) = delete;
  ~VirtualNodeMemory();

  const VirtualNodeSpec& spec() const { return spec_; }
  const std::shared_ptr<Clock>& clock() const { return clock_; }
  Nanoseconds Now() const;  // Virtual time, from 0 when the file was made.
  // Between the clock's and virtual time; ToReal is the first moment at which it is that time.
  Nanoseconds ToVirtual(Nanoseconds real) const;
  Nanoseconds ToReal(Nanoseconds time) const;

  // Changes the cell, all or nothing; `change` is told what time it is. It may be given up midway
  // with an exception.
  Result<void> Update(int gpu, const std::function<void(VirtualCell&, Nanoseconds)>& change);

  struct Snapshot {
    VirtualCell cell;
    Nanoseconds now = 0;
    std::uint32_t version = 0;
  };
  // As of now, after the GPU was taken from a worker that died.
  Result<Snapshot> Read(int gpu);
  // Returns when the cell's version is no longer this one, when it is `until` (virtual), or
  // earlier.
  void WaitWhile(int gpu, std::uint32_t version, Nanoseconds until);
  // Virtual time.
  void SleepUntil(Nanoseconds until);

  // Makes this process the one that computes on the GPU, until the claim is destroyed or
  // the process ends. Fails if another one does.
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
