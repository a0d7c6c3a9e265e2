#include "perseus/runtime/agent/gpu_manager.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/runtime/agent/agent_lock.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;

// Encloses the name in quotes, and replaces quotes inside the name. The user chose the name, and
// the name must not look like another part of a message.
std::string QuotedJob(std::string job) {
  std::ranges::replace(job, '"', '\'');
  return '"' + job + '"';
}

std::string NameOf(const Lease& lease) {
  return fmt::format("lease {} ({}, user {}, process {})", lease.id, QuotedJob(lease.owner.job),
                     lease.owner.uid, lease.owner.process.pid);
}

const device::SettingReading& At(const GpuWorker::Found& found, device::Control control) {
  return found[static_cast<std::size_t>(control)];
}

tl::unexpected<protocol::Refused> NoSuchGpu(const std::string& uuid) {
  return Refuse(Refusal::kNoSuchGpu, "this node has no GPU {} (see perseus gpu list)", uuid);
}

std::string Describe(const std::optional<device::SettingReading>& reading,
                     device::Control control) {
  if (!reading) return "it cannot be read";
  if (reading->is_known) return "it reads " + device::Describe(control, reading->setting);
  return reading->hint.empty() ? "the driver does not report it" : reading->hint;
}

Result<void> CheckClock(const std::vector<int>& clocks_mhz, int clock_mhz, std::string_view uuid) {
  const auto above = std::ranges::lower_bound(clocks_mhz, clock_mhz);
  if (clocks_mhz.empty() || (above != clocks_mhz.end() && *above == clock_mhz)) return {};
  std::string nearest;
  if (above != clocks_mhz.begin()) nearest = fmt::format("{} MHz", *std::prev(above));
  if (above != clocks_mhz.end()) {
    nearest += fmt::format("{}{} MHz", nearest.empty() ? "" : " and ", *above);
  }
  return Fail("`rest = {}`: the GPU has no SM clock of {} MHz (the nearest: {})", uuid, clock_mhz,
              nearest);
}

// Accepts a missing GPU that was declared earlier, because the other GPUs need an agent.
Result<void> CheckResting(const GpuManager::Setup::Resting& resting,
                          const std::vector<std::unique_ptr<device::Device>>& devices,
                          const SavedState& saved) {
  if (!resting.setting) return {};
  const auto device =
      std::ranges::find(devices, resting.uuid, [](const auto& one) { return one->info().uuid; });
  if (device == devices.end()) {
    if (saved.resting.contains(resting.uuid)) return {};
    return Fail("`rest = {0}`: this node has no GPU {0} (perseus doctor lists the GPUs)",
                resting.uuid);
  }
  if (resting.control != device::Control::kSmClock) return {};
  const std::vector<int>& clocks_mhz = (*device)->info().sm_clocks_mhz;
  PERSEUS_RETURN_IF_ERROR(CheckClock(clocks_mhz, resting.setting->lower, resting.uuid));
  return CheckClock(clocks_mhz, resting.setting->upper, resting.uuid);
}

}  // namespace

struct GpuManager::Gpu {
  std::unique_ptr<GpuWorker> worker;
  // These values were logged last.
  bool has_failed = false;  // Whether the current restore has failed.
  bool has_foreign_clock = false;
  std::uint64_t foreign_resets = 0;
  std::string energy;
  std::uint64_t counter_falls = 0;

  // Logs a failure once, if it still exists at a tick after the first retries. If another program
  // sets the clock of the leased GPU, logs this once, and logs once when this ends. Logs once if
  // the energy counter cannot be used, and each of its falls.
  void Log(const std::string& uuid, const GpuSnapshot& snapshot, spdlog::logger& log) {
    if (snapshot.is_restoring && !snapshot.setting_trouble.empty() &&
        !std::exchange(has_failed, true)) {
      log.warn("{} is not restored yet, and the agent tries again: {}", uuid,
               snapshot.setting_trouble);
    }
    const bool had_foreign_clock = std::exchange(has_foreign_clock, snapshot.foreign.has_value());
    if (has_foreign_clock && !had_foreign_clock) {
      log.warn("{}: {}", uuid, DescribeForeign(snapshot));
    } else if (!has_foreign_clock && had_foreign_clock) {
      log.info("{}: {}", uuid,
               snapshot.is_serving ? "the lock of another program is gone"
                                   : "the lease has ended while another program locks the clock");
    }
    if (snapshot.telemetry) LogEnergy(uuid, *snapshot.telemetry, log);
    const std::uint64_t resets = snapshot.counts.foreign_resets;
    if (resets == std::exchange(foreign_resets, resets)) return;
    log.warn(
        "{}: the SM clock of the job is not in force (another program unlocked it, or the driver "
        "did not perform the write); the agent sets it again",
        uuid);
  }

  void LogEnergy(const std::string& uuid, const device::Telemetry& telemetry, spdlog::logger& log) {
    const std::uint64_t falls = telemetry.counter_falls;
    if (falls != std::exchange(counter_falls, falls)) {
      log.warn(
          "{}: its energy counter fell (a reset of the GPU or its driver, or a fault); the "
          "energy of this window is not counted",
          uuid);
    }
    std::string now = device::DescribeEnergy(telemetry);
    if (now == energy) return;
    energy = std::move(now);
    log.warn("{}: {}", uuid, energy);
  }
};

// An Acquire whose GPUs are being read.
struct GpuManager::Acquiring {
  std::string lease;
  std::map<std::string, GpuWorker::Found> found;
  std::string failure;  // The first failure.
  std::size_t missing = 0;
  Reply done;
};

// ---- The start ----

Result<std::unique_ptr<GpuManager>> GpuManager::Open(Setup setup, Post post, spdlog::logger& log) {
  PERSEUS_ASSIGN_OR_RETURN(auto lock, LockSavedState(setup.state));
  if (!setup.socket.empty()) RecordSocket(lock, setup.socket);
  RemoveUnfinished(setup.state);
  PERSEUS_ASSIGN_OR_RETURN(auto state,
                           SavedStateFile::Open(setup.state, setup.boot_id, setup.write_state));
  std::vector<std::unique_ptr<device::Device>> devices = std::move(setup.devices.devices);
  setup.devices.devices.clear();
  std::unique_ptr<GpuManager> manager(
      new GpuManager(std::move(setup), std::move(lock), std::move(state), std::move(post), log));
  PERSEUS_RETURN_IF_ERROR(manager->Begin(std::move(devices)));
  return manager;
}

GpuManager::GpuManager(Setup setup, FileDescriptor lock, SavedStateFile state, Post post,
                       spdlog::logger& log)
    : setup_(std::move(setup)),
      lock_(std::move(lock)),
      state_(std::move(state), log),
      post_(std::move(post)),
      log_(log),
      table_(EpochOf(setup_.boot_id, MonotonicNow())),
      access_(setup_.host, post_, log_) {}

GpuManager::~GpuManager() { *is_alive_ = false; }

Result<void> GpuManager::Begin(std::vector<std::unique_ptr<device::Device>> devices) {
  if (!setup_.lock_directory.empty()) {
    PERSEUS_ASSIGN_OR_RETURN(gpu_locks_, LockGpus(setup_.lock_directory, devices, log_));
  }
  Readings readings;
  for (const auto& device : devices) {
    for (const device::Control control : device::kAllControls) {
      if (auto reading = device->ReadSetting(control)) {
        readings[device->info().uuid][control] = *std::move(reading);
      }
    }
  }
  SavedState next = *state_;
  for (const Setup::Resting& resting : setup_.resting) {
    PERSEUS_RETURN_IF_ERROR(CheckResting(resting, devices, next));
    next.DeclareResting(resting.uuid, resting.control, resting.setting);
  }
  const std::vector<Restore> restores = RestoresAfterStart(next, setup_.boot_id, readings);
  // The warning comes before the state forgets these controls.
  for (const auto& [wanted, reading] : NotRestoredAfterStart(next, restores, readings)) {
    const SavedGpu& saved = next.gpus.at(wanted.uuid);
    log_.warn(
        "{}: the {}, which lease {} ({}) changed in another boot, is not restored: {} (if neither "
        "the boot nor another program has set it since, set it to {} by hand, as with nvidia-smi)",
        wanted.uuid, NameOf(wanted.control), saved.lease, QuotedJob(saved.owner.job),
        Describe(reading, wanted.control), device::Describe(wanted.control, wanted.setting));
  }
  next.BeginBoot(setup_.boot_id, restores);
  if (auto saved = state_.Save(std::move(next)); !saved) return saved;

  for (auto& device : devices) {
    const std::string uuid = device->info().uuid;
    gpus_[uuid].worker = std::make_unique<GpuWorker>(std::move(device), setup_.periods,
                                                     setup_.devices.clock, setup_.when_overridden);
  }
  for (const auto& [uuid, controls] : state_->resting) {
    if (!gpus_.contains(uuid))
      log_.warn(
          "{}, which has declared resting clocks, is not on this node (if it is gone for good, "
          "run perseus agent --rest {}=default once)",
          uuid, uuid);
  }
  for (const auto& [uuid, saved] : state_->gpus) {
    if (!gpus_.contains(uuid)) {
      log_.warn(
          "lease {} left {} changed, and the GPU is missing: it is restored when an agent finds it "
          "again",
          saved.lease, uuid);
      missing_.push_back(uuid);
      continue;
    }
    log_.info("restoring {}, which lease {} ({}) left changed", uuid, saved.lease,
              QuotedJob(saved.owner.job));
    table_.StartRestoring(uuid, saved.lease, saved.owner, Now());
    StartRestore(uuid, saved.lease, restores);
  }
  return {};
}

// ---- A lease begins ----

Answer<void> GpuManager::CheckWanted(const protocol::Acquire& wanted) const {
  if (is_stopping_) return Refuse(Refusal::kUnavailable, "the agent is stopping");
  for (const std::string& uuid : wanted.gpus) {
    const auto gpu = gpus_.find(uuid);
    if (gpu == gpus_.end()) return NoSuchGpu(uuid);
    const device::DeviceInfo& info = gpu->second.worker->info();
    if (!info.measure_only.empty()) {
      return Refuse(Refusal::kNoSuchGpu, "{} can only be measured: {}", uuid, info.measure_only);
    }
  }
  return {};
}

void GpuManager::Acquire(const Caller& caller, ConnectionId connection,
                         const protocol::Acquire& wanted, Reply done) {
  if (const auto possible = CheckWanted(wanted); !possible) return done(Fail(possible));
  const auto now = LookAgain(setup_.host, caller);
  if (!now) return done(Fail(now));
  AccessQuestion question{.caller = *now, .gpus = {}, .grants = {}};
  for (const std::string& uuid : wanted.gpus) {
    if (HasNamedRightTo(*now, uuid, state_->grants)) continue;
    question.gpus.push_back({uuid, gpus_.at(uuid).worker->info().device_file});
  }
  if (question.gpus.empty()) return Lend(*now, connection, wanted, std::move(done));
  question.grants = state_->grants;
  access_.Check(std::move(question), connection,
                [this, connection, wanted, done](const Answer<Caller>& allowed) {
                  if (!allowed) return done(Fail(allowed));
                  // Meanwhile, the agent may have begun to stop.
                  if (const auto possible = CheckWanted(wanted); !possible) {
                    return done(Fail(possible));
                  }
                  Lend(*allowed, connection, wanted, done);
                });
}

void GpuManager::Lend(const Caller& caller, ConnectionId connection,
                      const protocol::Acquire& wanted, Reply done) {
  const LeaseTable::Wish wish{.owner = {caller.process, caller.uid, wanted.job},
                              .connection = connection,
                              .gpus = wanted.gpus,
                              .heartbeat_period = ToNanoseconds(wanted.heartbeat_s)};
  const auto lease = table_.Acquire(wish, Now());
  if (!lease) return done(Fail(lease));

  auto acquiring = std::make_shared<Acquiring>();
  acquiring->lease = lease->id;
  acquiring->missing = lease->gpus.size();
  acquiring->done = std::move(done);
  for (const std::string& uuid : lease->gpus) {
    gpus_.at(uuid).worker->Find(
        [this, alive = is_alive_, acquiring, uuid](device::DeviceResult<GpuWorker::Found> found) {
          post_([this, alive, acquiring, uuid, found = std::move(found)] {
            if (!*alive) return;
            if (found) {
              acquiring->found[uuid] = *found;
            } else if (acquiring->failure.empty()) {
              acquiring->failure = fmt::format("{}: {}", uuid, found.error().Message());
            }
            if (--acquiring->missing == 0) Found(acquiring);
          });
        });
  }
}

void GpuManager::Found(const std::shared_ptr<Acquiring>& acquiring) {
  const Lease* found = table_.Find(acquiring->lease);
  if (found == nullptr) {
    // If the connection of the request has ended, `done` sends nothing.
    return acquiring->done(
        Refuse(Refusal::kUnavailable, "the lease ended while the driver was read (try again)"));
  }
  const Lease lease = *found;
  auto channel = OpenChannel(*acquiring, lease);
  if (!channel) {
    table_.Cancel(lease.id);
    return acquiring->done(Fail(channel));
  }
  if (auto saved = SaveLease(*acquiring, lease); !saved) {
    if (state_.IsSaved()) {
      table_.Cancel(lease.id);
      return acquiring->done(Fail(saved));
    }
    // The content of the disk is unknown, so no client gets the GPUs until a save succeeds.
    static_cast<void>(table_.Release(lease.id, lease.connection, Now()));
    for (const std::string& uuid : lease.gpus) restored_unsaved_[uuid] = lease.id;
    return acquiring->done(Fail(saved));
  }
  log_.info("{} has {}", NameOf(lease), fmt::join(lease.gpus, ", "));
  acquiring->done(Serve(*acquiring, lease, *std::move(channel)));
}

Answer<protocol::ClockChannel> GpuManager::OpenChannel(const Acquiring& acquiring,
                                                       const Lease& lease) const {
  if (!acquiring.failure.empty()) {
    return Refuse(Refusal::kUnavailable, "the driver does not respond for {}", acquiring.failure);
  }
  for (const auto& [uuid, found] : acquiring.found) {
    const device::SettingReading& clock = At(found, device::Control::kSmClock);
    if (clock.is_known || clock.hint.empty() || state_->RestingOf(uuid, device::Control::kSmClock))
      continue;
    if (!clock.is_certain) {
      log_.warn("{}: {}; the agent assumes that it is not locked", uuid, clock.hint);
      continue;
    }
    return Refuse(Refusal::kUnavailable,
                  "{}: {}; the driver does not report the locked clocks, so the agent could not "
                  "restore them (unlock the GPU, or run perseus agent --rest {}=MIN-MAX)",
                  uuid, clock.hint, uuid);
  }
  auto channel = protocol::ClockChannel::Create(static_cast<int>(lease.gpus.size()));
  if (!channel) return Refuse(Refusal::kUnavailable, "{}", channel.error().Message());
  return *std::move(channel);
}

GpuManager::Granted GpuManager::Serve(const Acquiring& acquiring, const Lease& lease,
                                      protocol::ClockChannel channel) {
  auto shared = std::make_shared<protocol::ClockChannel>(std::move(channel));
  channels_[lease.id] = shared;
  ShareOutChanges();
  protocol::Lease reply{.id = lease.id, .gpus = lease.gpus, .sm_clocks_mhz = {}};
  for (std::size_t i = 0; i < lease.gpus.size(); ++i) {
    const std::string& uuid = lease.gpus[i];
    const device::SettingReading& clock = At(acquiring.found.at(uuid), device::Control::kSmClock);
    GpuWorker& worker = *gpus_.at(uuid).worker;
    worker.Serve(
        shared, static_cast<int>(i),
        clock.is_known ? clock.setting : state_->RestingOf(uuid, device::Control::kSmClock));
    reply.sm_clocks_mhz.push_back(worker.info().sm_clocks_mhz);
  }
  return {std::move(reply), std::move(shared)};
}

double GpuManager::ShareOfChanges() const {
  int leased = 0;
  for (const auto& [lease, channel] : channels_) leased += channel->gpu_count();
  return setup_.most_changes_per_s / std::max(leased, 1);
}

// GPUs that are being restored need no share, because restoring does not use the limit.
void GpuManager::ShareOutChanges() {
  const double share = ShareOfChanges();
  for (const auto& [id, channel] : channels_) {
    const Lease* const lease = table_.Find(id);
    if (lease == nullptr) continue;
    for (const std::string& uuid : lease->gpus) gpus_.at(uuid).worker->LimitChanges(share);
  }
}

void GpuManager::WarnOfLimit(const std::string& uuid) {
  const GpuHold* const hold = table_.HoldOf(uuid);
  const Lease* const lease = hold != nullptr ? table_.Find(hold->lease) : nullptr;
  if (lease == nullptr || !over_limit_.insert(lease->id).second) return;
  log_.warn(
      "{} changes the clock of {} more often than the limit allows, which is {:.4g} changes per "
      "second here; changes to lower clocks wait, so no step takes longer, but the job saves less "
      "energy (plan with perseus plan --facts or --max-switches, or raise --max-changes)",
      NameOf(*lease), uuid, ShareOfChanges());
}

Answer<void> GpuManager::SaveLease(const Acquiring& acquiring, const Lease& lease) {
  SavedState next = *state_;
  for (const auto& [uuid, found] : acquiring.found) {
    const SavedControl clock{Before(At(found, device::Control::kSmClock)), /*is_changed=*/true};
    next.Take({.uuid = uuid,
               .lease = lease.id,
               .owner = lease.owner,
               .controls = {{device::Control::kSmClock, clock}}});
  }
  const auto saved = state_.Save(std::move(next));
  if (saved) return {};
  return Refuse(Refusal::kUnavailable,
                "the current settings of the GPUs could not be saved, so the agent could not "
                "restore them: {}",
                saved.error().Message());
}

// ---- A lease ends ----

void GpuManager::End(const Lease& lease, LeaseEnd how) {
  log_.info("{} has ended ({}); restoring {}", NameOf(lease), agent::NameOf(how),
            fmt::join(lease.gpus, ", "));
  ++ended_[how];
  channels_.erase(lease.id);
  over_limit_.erase(lease.id);
  ShareOutChanges();
  for (const std::string& uuid : lease.gpus) {
    StartRestore(uuid, lease.id, RestoresAfterLease(*state_, uuid));
  }
}

void GpuManager::StartRestore(const std::string& uuid, const std::string& lease,
                              const std::vector<Restore>& restores) {
  std::vector<ControlSetting> settings;
  for (const Restore& restore : restores) {
    if (restore.uuid == uuid) settings.push_back({restore.control, restore.setting});
  }
  Gpu& gpu = gpus_.at(uuid);
  gpu.has_failed = false;
  gpu.worker->Restore(std::move(settings), [this, alive = is_alive_, uuid, lease] {
    post_([this, alive, uuid, lease] {
      if (*alive) IsRestored(uuid, lease);
    });
  });
}

void GpuManager::IsRestored(const std::string& uuid, const std::string& lease) {
  if (Free(uuid, lease)) return;
  // No client gets the GPU until this state is saved. Suppose the GPU were free before, and this
  // agent died. The next agent would restore the GPU again, and overwrite settings that others may
  // have made meanwhile.
  restored_unsaved_[uuid] = lease;
}

bool GpuManager::Free(const std::string& uuid, const std::string& lease) {
  SavedState next = *state_;
  for (const device::Control control : device::kAllControls) next.Restored(uuid, control);
  next.GiveBack(uuid);
  if (!state_.Save(std::move(next))) return false;
  table_.Restored(uuid, lease);
  log_.info("{} has its settings from before lease {} again", uuid, lease);
  return true;
}

Answer<void> GpuManager::Release(ConnectionId connection, const protocol::Release& wanted) {
  PERSEUS_ASSIGN_OR_RETURN(const auto ended, table_.Release(wanted.lease, connection, Now()));
  End(ended, LeaseEnd::kReleased);
  return {};
}

Answer<void> GpuManager::ReleaseGpu(const Caller& caller, const protocol::ReleaseGpu& wanted) {
  if (!gpus_.contains(wanted.gpu)) return NoSuchGpu(wanted.gpu);
  PERSEUS_ASSIGN_OR_RETURN(const Caller now, LookAgain(setup_.host, caller));
  PERSEUS_ASSIGN_OR_RETURN(const auto ended,
                           table_.ReleaseGpu(wanted.gpu, {now.uid, now.is_administrator}, Now()));
  End(ended, LeaseEnd::kByHand);
  return {};
}

void GpuManager::EndOfConnection(ConnectionId connection) {
  access_.EndOfConnection(connection);
  for (const Lease& lease : table_.EndOfConnection(connection, Now())) {
    End(lease, LeaseEnd::kConnectionClosed);
  }
}

void GpuManager::EndOfProcess(const ProcessId& process) {
  access_.EndOfProcess(process);
  for (const Lease& lease : table_.EndOfProcess(process, Now())) {
    End(lease, LeaseEnd::kProcessGone);
  }
}

void GpuManager::EndAll() {
  is_stopping_ = true;
  std::set<ConnectionId> connections;
  for (const auto& [id, lease] : table_.leases()) connections.insert(lease.connection);
  for (const ConnectionId connection : connections) {
    for (const Lease& lease : table_.EndOfConnection(connection, Now())) {
      End(lease, LeaseEnd::kAgentStopped);
    }
  }
}

bool GpuManager::HasLease(ConnectionId connection) const {
  return std::ranges::any_of(table_.leases(), [connection](const auto& lease) {
    return lease.second.connection == connection;
  });
}

bool GpuManager::IsAllBack() const {
  return std::ranges::none_of(
      gpus_, [this](const auto& gpu) { return table_.HoldOf(gpu.first) != nullptr; });
}

void GpuManager::Tick() {
  const Nanoseconds now = Now();
  for (const auto& [lease, channel] : channels_) table_.Beat(lease, channel->heartbeat(), now);
  for (const Lease& lease : table_.Expire(now)) End(lease, LeaseEnd::kSilent);
  std::vector<std::string> troubles;
  for (auto& [uuid, gpu] : gpus_) {
    const GpuSnapshot snapshot = gpu.worker->snapshot();
    gpu.Log(uuid, snapshot, log_);
    if (snapshot.is_over_limit) WarnOfLimit(uuid);
    if (!snapshot.reading_trouble.empty()) troubles.push_back(snapshot.reading_trouble);
  }
  LogTroubles(troubles);
  std::erase_if(restored_unsaved_,
                [this](const auto& restored) { return Free(restored.first, restored.second); });
}

void GpuManager::LogTroubles(const std::vector<std::string>& troubles) {
  const Nanoseconds now = Now();
  if (troubles.empty()) {
    if (has_logged_trouble_) log_.info("all GPUs can be read again");
    trouble_since_.reset();
    has_logged_trouble_ = false;
    return;
  }
  if (!trouble_since_) trouble_since_ = now;
  // A single reading that fails is no trouble.
  const auto lasts = 3 * std::chrono::nanoseconds(setup_.periods.observe_free);
  if (now < *trouble_since_ + lasts.count() || std::exchange(has_logged_trouble_, true)) return;
  log_.warn("{} of {} GPUs cannot be read: {}", troubles.size(), gpus_.size(), troubles.front());
}

// ---- The rest ----

Answer<void> GpuManager::Renew(ConnectionId connection, const protocol::Renew& wanted) {
  return table_.Renew(wanted.lease, connection, Now());
}

Answer<void> GpuManager::DeclareSlowdown(ConnectionId connection,
                                         const protocol::DeclareSlowdown& wanted) {
  return table_.DeclareSlowdown(wanted.lease, connection, wanted.slowdown);
}

Answer<void> GpuManager::Grant(const Caller& caller, const protocol::Grant& wanted) {
  if (!caller.is_administrator) {
    return Refuse(Refusal::kNotAllowed, "only root grants GPUs (run it as root)");
  }
  for (const std::string& uuid : wanted.gpus) {
    if (!gpus_.contains(uuid)) return NoSuchGpu(uuid);
  }
  SavedState next = *state_;
  PERSEUS_RETURN_IF_ERROR(next.Add(wanted));
  if (auto saved = state_.Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the grant could not be saved: {}",
                  saved.error().Message());
  }
  return {};
}

Answer<void> GpuManager::Revoke(const Caller& caller, const protocol::Revoke& wanted) {
  if (!caller.is_administrator) {
    return Refuse(Refusal::kNotAllowed, "only root revokes grants (run it as root)");
  }
  SavedState next = *state_;
  PERSEUS_RETURN_IF_ERROR(next.Remove(wanted.grant));
  if (auto saved = state_.Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the revocation could not be saved: {}",
                  saved.error().Message());
  }
  return {};
}

AgentReport GpuManager::Report() const {
  AgentReport report;
  report.now = MonotonicNow();
  report.leases_now = Now();
  for (const auto& [uuid, gpu] : gpus_) {
    GpuReport& entry = report.gpus.emplace_back();
    entry.info = gpu.worker->info();
    entry.snapshot = gpu.worker->snapshot();
    if (const GpuHold* hold = table_.HoldOf(uuid)) {
      entry.hold = *hold;
      if (const Lease* lease = table_.Find(hold->lease); lease != nullptr && !hold->is_restoring) {
        entry.lease = *lease;
        if (channels_.contains(lease->id)) entry.most_changes_per_s = ShareOfChanges();
      }
    }
    for (const Restore& restore : RestoresAfterLease(*state_, uuid)) {
      entry.before.push_back({restore.control, restore.setting});
    }
  }
  report.missing_gpus = missing_;
  report.leases = table_.leases().size();
  report.ended = ended_;
  report.state_failures = state_.failures();
  return report;
}

}  // namespace perseus::agent
