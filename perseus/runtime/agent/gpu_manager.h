// The agent's GPUs and who has them: leases, what is saved of them, and the threads that set
// clocks, brought together. Sockets are agent.h's.
//
// The way of a lease:
//
//   Acquire: the caller's right -> the table has it free -> the driver is asked what is set
//            -> that is saved to disk -> the channel is served -> the client is answered
//   its end, by whatever way: no request is served any more -> each changed control is put back,
//            until it takes -> that is saved -> the GPU is free
//
// Whatever fails on the way in takes back what came before it, and nothing was changed. Nothing
// that fails on the way out ends it: it is tried again.
//
// Thread safety: none; one thread, the event loop's, makes all calls, and `post` brings what other
// threads answer back to it.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/agent/agent_report.h"
#include "perseus/runtime/agent/caller.h"
#include "perseus/runtime/agent/gpu_worker.h"
#include "perseus/runtime/agent/lease_table.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/clock_channel.h"
#include "perseus/runtime/protocol/messages.h"

namespace perseus::agent {

class GpuManager {
 public:
  struct Setup {
    device::DeviceList devices;
    std::filesystem::path state;
    SavedStateFile::Writer write_state;  // For tests; empty: to disk.
    std::string boot_id;
    Host host;
    // What a control is to return to where the driver cannot tell; replaces what is saved of it.
    struct Resting {
      std::string uuid;
      device::Control control = device::Control::kSmClock;
      device::Setting setting;
    };
    std::vector<Resting> resting;
    // Where a lock for each GPU lies, so that two agents with states of their own do not set the
    // same one; empty: nowhere. Virtual GPUs, of which many may have one name, are not locked.
    std::filesystem::path lock_directory;
    GpuWorker::Periods periods;
  };
  // Runs its argument on the event loop's thread, later. Called from any thread.
  using Post = std::function<void(std::function<void()>)>;

  // Begins with giving back what an earlier agent left. Fails if the state cannot be read or
  // written, or another manager has it: then no GPU is touched.
  static Result<std::unique_ptr<GpuManager>> Open(Setup setup, Post post, spdlog::logger& log);
  // Gives nothing back: EndAll() and wait until IsAllBack().
  ~GpuManager();
  GpuManager(const GpuManager&) = delete;
  GpuManager& operator=(const GpuManager&) = delete;

  // ---- What clients ask for ----

  struct Granted {
    protocol::Lease lease;
    std::shared_ptr<protocol::ClockChannel> channel;
  };
  // `done` is called on the loop's thread, now or later; not if the connection ended meanwhile.
  void Acquire(const Caller& caller, ConnectionId connection, const protocol::Acquire& wanted,
               std::function<void(Answer<Granted>)> done);
  Answer<void> Release(ConnectionId connection, const protocol::Release& wanted);
  Answer<void> Renew(ConnectionId connection, const protocol::Renew& wanted);
  Answer<void> DeclareSlowdown(ConnectionId connection, const protocol::DeclareSlowdown& wanted);
  Answer<void> ReleaseGpu(const Caller& caller, const protocol::ReleaseGpu& wanted);
  Answer<void> Grant(const Caller& caller, const protocol::Grant& wanted);
  Answer<void> Revoke(const Caller& caller, const protocol::Revoke& wanted);
  protocol::Listing List() const;

  // ---- What ends without being asked ----

  void EndOfConnection(ConnectionId connection);
  void EndOfProcess(const ProcessId& process);
  // Looks at heartbeats, and tries again what could not be saved. At least every
  // LeaseTable::kLongestGap.
  void Tick();
  bool HasLease(ConnectionId connection) const;
  // No more leases; all GPUs go back.
  void EndAll();
  // Nothing that is here is held or being given back.
  bool IsAllBack() const;

  // GPUs, leases and failures; not what the agent's sockets know.
  AgentReport Report() const;

 private:
  struct Gpu;
  struct Acquiring;

  GpuManager(Setup setup, FileDescriptor lock, SavedStateFile state, Post post,
             spdlog::logger& log);
  Result<void> LockGpus(const std::vector<std::unique_ptr<device::Device>>& devices);
  Result<void> Begin(std::vector<std::unique_ptr<device::Device>> devices);
  Answer<void> CheckWanted(const Caller& caller, const protocol::Acquire& wanted) const;
  void Found(const std::shared_ptr<Acquiring>& acquiring);
  Answer<protocol::ClockChannel> OpenChannel(const Acquiring& acquiring, const Lease& lease) const;
  Granted Serve(const Acquiring& acquiring, const Lease& lease, protocol::ClockChannel channel);
  Answer<void> SaveLease(const Acquiring& acquiring, const Lease& lease);
  void End(const Lease& lease, LeaseEnd how);
  void StartRestore(const std::string& uuid, const std::string& lease,
                    const std::vector<Restore>& restores);
  void IsRestored(const std::string& uuid, const std::string& lease);
  // Saves that the GPU is back, and frees it; false if that could not be saved.
  bool Free(const std::string& uuid, const std::string& lease);
  Result<void> Save(SavedState next);
  std::optional<device::Setting> RestingOf(const std::string& uuid, device::Control control) const;

  const Setup setup_;          // Without its devices.
  const FileDescriptor lock_;  // Of the state, against a second manager of it.
  std::vector<FileDescriptor> gpu_locks_;
  SavedStateFile state_;
  const Post post_;
  spdlog::logger& log_;
  LeaseTable table_;
  std::map<std::string, Gpu> gpus_;                                          // By UUID.
  std::map<std::string, std::shared_ptr<protocol::ClockChannel>> channels_;  // By lease.
  // UUID to lease: nothing of the GPU is changed any more, and that could not be saved yet.
  std::map<std::string, std::string> restored_unsaved_;
  bool is_disk_known_ = true;         // Nothing was saved in vain since the last success.
  std::vector<std::string> missing_;  // To be restored, not here.
  std::map<LeaseEnd, std::uint64_t> ended_;
  std::uint64_t state_failures_ = 0;
  bool is_stopping_ = false;
  // What workers have yet to answer must not find a manager that is gone.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
};

}  // namespace perseus::agent
