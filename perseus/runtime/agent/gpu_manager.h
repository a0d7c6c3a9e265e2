// The agent's GPUs and their leases: the lease table, the saved state, and the threads that set
// clocks. agent.h has the sockets.
//
// The life of a lease:
//
//   Acquire: the caller has the right (the kernel may have to be asked)
//            -> the GPU is free in the table -> read the current settings
//            -> save them to disk -> serve the channel -> reply to the client
//   its end, for any reason: serve no more requests
//            -> restore each changed control, until it succeeds
//            -> save that -> the GPU is free
//
// If a step of Acquire fails, the steps before it are undone, and nothing has changed. If a step of
// the end fails, it is repeated.
//
// Not thread-safe. The thread of the event loop makes all calls. `post` passes the answers of other
// threads to this thread.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/access/caller.h"
#include "perseus/runtime/agent/access_requests.h"
#include "perseus/runtime/agent/agent_report.h"
#include "perseus/runtime/agent/gpu_worker.h"
#include "perseus/runtime/agent/lease_table.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/clock_channel/clock_channel.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

class GpuManager {
 public:
  struct Setup {
    device::DeviceList devices;
    std::filesystem::path state;
    // The socket on which the agent listens. The lock of the state records it, for `perseus gpu
    // restore`.
    std::filesystem::path socket;        // Empty: nothing listens.
    SavedStateFile::Writer write_state;  // For tests. Empty: writes to disk.
    std::string boot_id;
    Host host;
    // The setting to which a control returns if the driver cannot report the original setting. It
    // replaces the saved declaration. Empty: the driver's default, and the saved declaration is
    // removed.
    struct Resting {
      std::string uuid;
      device::Control control = device::Control::kSmClock;
      std::optional<device::Setting> setting;
    };
    std::vector<Resting> resting;
    // The directory with a lock for each GPU, so that two agents with different states do not set
    // the same GPU. Empty: no locks. Virtual GPUs are not locked, because several may have one
    // name.
    std::filesystem::path lock_directory;
    GpuWorker::Periods periods;
    WhenOverridden when_overridden = WhenOverridden::kYield;
    // The limit on clock changes per second for all GPUs together. Each leased GPU gets an equal
    // share of this limit. So the shares change when a lease begins or ends. 0: no limit.
    double most_changes_per_s = 0;
  };
  // Runs its argument later on the thread of the event loop. Any thread may call it.
  using Post = std::function<void(std::function<void()>)>;

  // First restores what an earlier agent left changed. Fails if the state cannot be read or
  // written, or if another manager uses the state. Fails (kInput) if a resting setting is for a GPU
  // that neither this node nor the state has. Also fails (kInput) if a resting setting has clocks
  // that its GPU does not have. After such a failure, no GPU was touched, and nothing was saved.
  static Result<std::unique_ptr<GpuManager>> Open(Setup setup, Post post, spdlog::logger& log);
  // The destructor restores nothing. Before it, call EndAll(), and wait until IsAllBack().
  ~GpuManager();
  GpuManager(const GpuManager&) = delete;
  GpuManager& operator=(const GpuManager&) = delete;

  // ---- Requests of clients ----

  struct Granted {
    protocol::Lease lease;
    std::shared_ptr<protocol::ClockChannel> channel;
  };
  using Reply = std::function<void(Answer<Granted>)>;
  // Calls `done` on the loop's thread, now or later. If the connection has ended, does not call it.
  void Acquire(const Caller& caller, ConnectionId connection, const protocol::Acquire& wanted,
               Reply done);
  Answer<void> Release(ConnectionId connection, const protocol::Release& wanted);
  Answer<void> Renew(ConnectionId connection, const protocol::Renew& wanted);
  Answer<void> DeclareSlowdown(ConnectionId connection, const protocol::DeclareSlowdown& wanted);
  Answer<void> ReleaseGpu(const Caller& caller, const protocol::ReleaseGpu& wanted);
  Answer<void> Grant(const Caller& caller, const protocol::Grant& wanted);
  Answer<void> Revoke(const Caller& caller, const protocol::Revoke& wanted);
  std::size_t gpu_count() const { return gpus_.size(); }
  protocol::Listing List() const { return ListingOf(Report()); }

  // ---- Ends without a request ----

  void EndOfConnection(ConnectionId connection);
  void EndOfProcess(const ProcessId& process);
  // Checks heartbeats, and repeats failed saves. Call this function at least every
  // LeaseTable::kLongestGap.
  void Tick();
  bool HasLease(ConnectionId connection) const;
  // Grants no more leases, and restores all GPUs.
  void EndAll();
  // Whether all present GPUs are free: no GPU is held or being restored.
  bool IsAllBack() const;

  // GPUs, leases and failures, without the counts of the socket.
  AgentReport Report() const;

 private:
  struct Gpu;
  struct Acquiring;

  GpuManager(Setup setup, FileDescriptor lock, SavedStateFile state, Post post,
             spdlog::logger& log);
  // The time of the leases, on the clock of the devices. Clients send heartbeats on the same clock.
  // Suppose this clock is virtual, and slower than real time because the machine is busy. Then a
  // heartbeat is still not late by this clock.
  Nanoseconds Now() const { return setup_.devices.clock->Now(); }
  Result<void> Begin(std::vector<std::unique_ptr<device::Device>> devices);
  Answer<void> CheckWanted(const protocol::Acquire& wanted) const;
  void Lend(const Caller& caller, ConnectionId connection, const protocol::Acquire& wanted,
            Reply done);
  void Found(const std::shared_ptr<Acquiring>& acquiring);
  Answer<protocol::ClockChannel> OpenChannel(const Acquiring& acquiring, const Lease& lease) const;
  Granted Serve(const Acquiring& acquiring, const Lease& lease, protocol::ClockChannel channel);
  void ShareOutChanges();
  // Warns once for each lease.
  void WarnOfLimit(const std::string& uuid);
  // Logs one line if GPUs cannot be read for seconds, and one line when all of them can be read.
  void LogTroubles(const std::vector<std::string>& troubles);
  // The changes per second that each leased GPU gets.
  double ShareOfChanges() const;
  Answer<void> SaveLease(const Acquiring& acquiring, const Lease& lease);
  void End(const Lease& lease, LeaseEnd how);
  void StartRestore(const std::string& uuid, const std::string& lease,
                    const std::vector<Restore>& restores);
  void IsRestored(const std::string& uuid, const std::string& lease);
  // Saves that the GPU is restored, and frees the GPU. Returns false if this could not be saved.
  bool Free(const std::string& uuid, const std::string& lease);

  const Setup setup_;          // Without its devices.
  const FileDescriptor lock_;  // Locks the state file against a second manager.
  std::vector<FileDescriptor> gpu_locks_;
  AgentState state_;
  const Post post_;
  spdlog::logger& log_;
  LeaseTable table_;
  std::map<std::string, Gpu> gpus_;                                          // By UUID.
  std::map<std::string, std::shared_ptr<protocol::ClockChannel>> channels_;  // By lease.
  std::set<std::string> over_limit_;  // Leases that were logged as over the limit on changes.
  // For GPUs that are restored, but whose new state could not be saved yet. Key: the UUID. Value:
  // the last lease of the GPU.
  std::map<std::string, std::string> restored_unsaved_;
  std::vector<std::string> missing_;          // GPUs to restore that are missing.
  std::optional<Nanoseconds> trouble_since_;  // Since when a GPU cannot be read.
  bool has_logged_trouble_ = false;
  std::map<LeaseEnd, std::uint64_t> ended_;
  bool is_stopping_ = false;
  // Tells answers of workers that come late that this manager no longer exists.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
  AccessRequests access_;  // Ends first.
};

}  // namespace perseus::agent
