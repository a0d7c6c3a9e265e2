#include "perseus/runtime/agent/gpu_manager.h"

#include <algorithm>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/runtime/agent/agent_lock.h"
#include "perseus/runtime/agent/slow_reasons.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;

// The user chose the name. In quotes, with none inside, it cannot pass for a part of the log.
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

std::string SettingInWords(const std::optional<ControlSetting>& setting) {
  return setting ? device::Describe(setting->control, setting->setting) : "";
}

}  // namespace

struct GpuManager::Gpu {
  std::unique_ptr<GpuWorker> worker;
  bool has_foreign_clock = false;  // As logged last.
  std::uint64_t foreign_resets = 0;
};

// An Acquire whose caller's access to the devices is being checked.
struct GpuManager::AccessToCheck {
  Caller caller;
  ConnectionId connection = 0;
  protocol::Acquire wanted;
  std::vector<GpuFile> files;
  Reply done;
};

// An Acquire whose GPUs are being read.
struct GpuManager::Acquiring {
  std::string lease;
  std::map<std::string, GpuWorker::Found> found;
  std::string failure;  // The first one.
  std::size_t missing = 0;
  Reply done;
};

// ---- The start ----

Result<std::unique_ptr<GpuManager>> GpuManager::Open(Setup setup, Post post, spdlog::logger& log) {
  PERSEUS_ASSIGN_OR_RETURN(auto lock, LockSavedState(setup.state));
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
      state_(std::move(state)),
      post_(std::move(post)),
      log_(log),
      table_(EpochOf(setup_.boot_id, MonotonicNow())) {}

GpuManager::~GpuManager() { *is_alive_ = false; }

Result<void> GpuManager::LockGpus(const std::vector<std::unique_ptr<device::Device>>& devices) {
  if (setup_.lock_directory.empty()) return {};
  for (const auto& device : devices) {
    const device::DeviceInfo& info = device->info();
    if (info.backend == "virtual") continue;
    std::string name = fmt::format("gpu-{}.lock", info.uuid);
    std::ranges::replace(name, '/', '_');
    auto lock = LockFile(setup_.lock_directory / name);
    if (!lock) {
      // A process that may not write there is usually not allowed to set clocks either.
      log_.warn("cannot lock out other agents: {}", lock.error().message);
      return {};
    }
    if (!*lock) {
      return FailAs(ErrorKind::kSystem,
                    "{}: another agent that is running uses this GPU (stop it first)", info.uuid);
    }
    gpu_locks_.push_back(*std::move(lock));
  }
  return {};
}

Result<void> GpuManager::Begin(std::vector<std::unique_ptr<device::Device>> devices) {
  if (auto locked = LockGpus(devices); !locked) return locked;
  Readings readings;
  for (const auto& device : devices) {
    for (const device::Control control : device::kAllControls) {
      if (auto reading = device->ReadSetting(control)) {
        readings[device->info().uuid][control] = *std::move(reading);
      }
    }
  }
  SavedState next = state_.state();
  for (const Setup::Resting& resting : setup_.resting) {
    next.DeclareResting(resting.uuid, resting.control, resting.setting);
  }
  const std::vector<Restore> restores = RestoresAfterStart(next, setup_.boot_id, readings);
  next.BeginBoot(setup_.boot_id, restores);
  if (auto saved = Save(std::move(next)); !saved) return saved;

  for (auto& device : devices) {
    const std::string uuid = device->info().uuid;
    gpus_[uuid].worker = std::make_unique<GpuWorker>(std::move(device), setup_.periods,
                                                     setup_.devices.clock, setup_.when_overridden);
  }
  for (const auto& [uuid, controls] : state_.state().resting) {
    if (!gpus_.contains(uuid))
      log_.warn("{}, which has declared resting clocks, is not on this node", uuid);
  }
  for (const auto& [uuid, saved] : state_.state().gpus) {
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

Answer<Caller> GpuManager::CheckWanted(const Caller& caller,
                                       const protocol::Acquire& wanted) const {
  if (is_stopping_) return Refuse(Refusal::kUnavailable, "the agent is stopping");
  for (const std::string& uuid : wanted.gpus) {
    const auto gpu = gpus_.find(uuid);
    if (gpu == gpus_.end()) return NoSuchGpu(uuid);
    const device::DeviceInfo& info = gpu->second.worker->info();
    if (!info.measure_only.empty()) {
      return Refuse(Refusal::kNoSuchGpu, "{} can only be measured: {}", uuid, info.measure_only);
    }
  }
  return LookAgain(setup_.host, caller);
}

void GpuManager::Acquire(const Caller& caller, ConnectionId connection,
                         const protocol::Acquire& wanted, Reply done) {
  const auto now = CheckWanted(caller, wanted);
  if (!now) return done(tl::unexpected<protocol::Refused>(now.error()));
  auto check = std::make_shared<AccessToCheck>();
  for (const std::string& uuid : wanted.gpus) {
    if (NamedRightTo(*now, uuid, state_.state().grants)) continue;
    const GpuFile file{uuid, gpus_.at(uuid).worker->info().device_file};
    if (file.device.empty()) return done(tl::unexpected(NoRightTo(*now, file, 0)));
    check->files.push_back(file);
  }
  if (check->files.empty()) return Lend(*now, connection, wanted, std::move(done));
  check->caller = *now;
  check->connection = connection;
  check->wanted = wanted;
  check->done = std::move(done);
  CheckAccessOf(check);
}

void GpuManager::CheckAccessOf(const std::shared_ptr<AccessToCheck>& check) {
  auto identity = IdentityOf(setup_.host, check->caller);
  if (!identity) return check->done(tl::unexpected<protocol::Refused>(identity.error()));
  std::vector<std::filesystem::path> devices;
  for (const GpuFile& file : check->files) devices.push_back(file.device);
  const bool is_added =
      access_queue_.Add(*std::move(identity), std::move(devices),
                        [this, alive = is_alive_, check](AccessQueue::Answered answered) {
                          post_([this, alive, check, answered = std::move(answered)] {
                            if (*alive && checks_.erase(check) > 0) AccessIsKnown(*check, answered);
                          });
                        });
  if (!is_added) {
    return check->done(Refuse(Refusal::kUnavailable,
                              "too many requests of user {} wait for a check (try again)",
                              check->caller.uid));
  }
  checks_.insert(check);
}

void GpuManager::AccessIsKnown(const AccessToCheck& check, const AccessQueue::Answered& errors) {
  if (!errors) {
    log_.warn("cannot check what process {} of user {} may use: {}", check.caller.process.pid,
              check.caller.uid, errors.error().message);
    return check.done(Refuse(Refusal::kUnavailable,
                             "cannot check which GPUs the user may use: {} (grant the GPU with "
                             "perseus gpu grant, as root)",
                             errors.error().message));
  }
  // The same process, still in the cgroups that the child joined.
  const auto now = CheckWanted(check.caller, check.wanted);
  if (!now) return check.done(tl::unexpected<protocol::Refused>(now.error()));
  if (now->cgroups != check.caller.cgroups) {
    return check.done(Refuse(Refusal::kUnavailable,
                             "process {} moved to another cgroup meanwhile (try again)",
                             now->process.pid));
  }
  for (std::size_t i = 0; i < check.files.size(); ++i) {
    if (const int error = (*errors)[i]; error != 0) {
      return check.done(tl::unexpected(NoRightTo(*now, check.files[i], error)));
    }
  }
  Lend(*now, check.connection, check.wanted, check.done);
}

void GpuManager::Lend(const Caller& caller, ConnectionId connection,
                      const protocol::Acquire& wanted, Reply done) {
  const LeaseTable::Wish wish{.owner = {caller.process, caller.uid, wanted.job},
                              .connection = connection,
                              .gpus = wanted.gpus,
                              .heartbeat_period = ToNanoseconds(wanted.heartbeat_s)};
  const auto lease = table_.Acquire(wish, Now());
  if (!lease) return done(tl::unexpected<protocol::Refused>(lease.error()));

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
              acquiring->failure = fmt::format("{}: {}", uuid, found.error().message);
            }
            if (--acquiring->missing == 0) Found(acquiring);
          });
        });
  }
}

void GpuManager::Found(const std::shared_ptr<Acquiring>& acquiring) {
  const Lease* found = table_.Find(acquiring->lease);
  if (found == nullptr) {
    // If its connection has ended, `done` sends nothing.
    return acquiring->done(
        Refuse(Refusal::kUnavailable, "the lease ended while the driver was read (try again)"));
  }
  const Lease lease = *found;
  auto channel = OpenChannel(*acquiring, lease);
  if (!channel) {
    table_.Cancel(lease.id);
    return acquiring->done(tl::unexpected<protocol::Refused>(channel.error()));
  }
  if (auto saved = SaveLease(*acquiring, lease); !saved) {
    // The content of the disk is unknown now, so no client gets the GPUs until a save succeeds.
    static_cast<void>(table_.Release(lease.id, lease.connection, Now()));
    for (const std::string& uuid : lease.gpus) restored_unsaved_[uuid] = lease.id;
    return acquiring->done(tl::unexpected<protocol::Refused>(saved.error()));
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
    if (clock.is_known || clock.hint.empty() || RestingOf(uuid, device::Control::kSmClock))
      continue;
    if (!clock.is_certain) {
      log_.warn("{}: {}; the agent assumes that it is not locked", uuid, clock.hint);
      continue;
    }
    return Refuse(Refusal::kUnavailable,
                  "{}: {}; the driver does not report the locked clocks, so the agent could not "
                  "restore them (unlock the GPU, or start the agent with --rest {}=MIN-MAX)",
                  uuid, clock.hint, uuid);
  }
  auto channel = protocol::ClockChannel::Create(static_cast<int>(lease.gpus.size()));
  if (!channel) return Refuse(Refusal::kUnavailable, "{}", channel.error().message);
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
    worker.Serve(shared, static_cast<int>(i),
                 clock.is_known ? clock.setting : RestingOf(uuid, device::Control::kSmClock));
    reply.sm_clocks_mhz.push_back(worker.info().sm_clocks_mhz);
  }
  return {std::move(reply), std::move(shared)};
}

double GpuManager::ShareOfChanges() const {
  int leased = 0;
  for (const auto& [lease, channel] : channels_) leased += channel->gpu_count();
  return setup_.most_changes_per_s / std::max(leased, 1);
}

// GPUs that are restored need no share, because restoring does not count.
void GpuManager::ShareOutChanges() {
  const double share = ShareOfChanges();
  for (const auto& [id, channel] : channels_) {
    const Lease* const lease = table_.Find(id);
    for (std::size_t i = 0; lease != nullptr && i < lease->gpus.size(); ++i) {
      gpus_.at(lease->gpus[i]).worker->LimitChanges(share);
      channel->SetMostChanges(static_cast<int>(i), share);
    }
  }
}

Answer<void> GpuManager::SaveLease(const Acquiring& acquiring, const Lease& lease) {
  SavedState next = state_.state();
  for (const auto& [uuid, found] : acquiring.found) {
    const SavedControl clock{Before(At(found, device::Control::kSmClock)), /*is_changed=*/true};
    next.Take({.uuid = uuid,
               .lease = lease.id,
               .owner = lease.owner,
               .controls = {{device::Control::kSmClock, clock}}});
  }
  const auto saved = Save(std::move(next));
  if (saved) return {};
  return Refuse(Refusal::kUnavailable,
                "the current settings of the GPUs could not be saved, so the agent could not "
                "restore them: {}",
                saved.error().message);
}

// ---- A lease ends ----

void GpuManager::End(const Lease& lease, LeaseEnd how) {
  log_.info("{} has ended ({}); restoring {}", NameOf(lease), agent::NameOf(how),
            fmt::join(lease.gpus, ", "));
  ++ended_[how];
  channels_.erase(lease.id);
  ShareOutChanges();
  for (const std::string& uuid : lease.gpus) {
    StartRestore(uuid, lease.id, RestoresAfterLease(state_.state(), uuid));
  }
}

void GpuManager::StartRestore(const std::string& uuid, const std::string& lease,
                              const std::vector<Restore>& restores) {
  std::vector<ControlSetting> settings;
  for (const Restore& restore : restores) {
    if (restore.uuid == uuid) settings.push_back({restore.control, restore.setting});
  }
  gpus_.at(uuid).worker->Restore(std::move(settings), [this, alive = is_alive_, uuid, lease] {
    post_([this, alive, uuid, lease] {
      if (*alive) IsRestored(uuid, lease);
    });
  });
}

void GpuManager::IsRestored(const std::string& uuid, const std::string& lease) {
  if (Free(uuid, lease)) return;
  // No client gets the GPU until this is saved. Otherwise, if this agent died, the next one would
  // restore the GPU again, and overwrite settings that others may have made meanwhile.
  restored_unsaved_[uuid] = lease;
}

bool GpuManager::Free(const std::string& uuid, const std::string& lease) {
  SavedState next = state_.state();
  for (const device::Control control : device::kAllControls) next.Restored(uuid, control);
  next.GiveBack(uuid);
  if (!Save(std::move(next))) return false;
  table_.Restored(uuid, lease);
  log_.info("{} has its settings from before lease {} again", uuid, lease);
  return true;
}

Answer<void> GpuManager::Release(ConnectionId connection, const protocol::Release& wanted) {
  const auto ended = table_.Release(wanted.lease, connection, Now());
  if (!ended) return tl::unexpected<protocol::Refused>(ended.error());
  End(*ended, LeaseEnd::kReleased);
  return {};
}

Answer<void> GpuManager::ReleaseGpu(const Caller& caller, const protocol::ReleaseGpu& wanted) {
  const auto now = LookAgain(setup_.host, caller);
  if (!now) return tl::unexpected<protocol::Refused>(now.error());
  const auto ended = table_.ReleaseGpu(wanted.gpu, {now->uid, now->is_administrator}, Now());
  if (!ended) return tl::unexpected<protocol::Refused>(ended.error());
  End(*ended, LeaseEnd::kByHand);
  return {};
}

void GpuManager::EndOfConnection(ConnectionId connection) {
  std::erase_if(checks_, [&](const auto& check) { return check->connection == connection; });
  for (const Lease& lease : table_.EndOfConnection(connection, Now())) {
    End(lease, LeaseEnd::kConnectionClosed);
  }
}

void GpuManager::EndOfProcess(const ProcessId& process) {
  std::erase_if(checks_, [&](const auto& check) { return check->caller.process == process; });
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
  for (auto& [uuid, gpu] : gpus_) LogForeign(uuid, gpu);
  std::erase_if(restored_unsaved_,
                [this](const auto& restored) { return Free(restored.first, restored.second); });
}

void GpuManager::LogForeign(const std::string& uuid, Gpu& gpu) {
  GpuReport report;
  report.snapshot = gpu.worker->snapshot();
  const bool has_foreign_clock = report.snapshot.foreign.has_value();
  if (has_foreign_clock && !gpu.has_foreign_clock) {
    log_.warn("{}: {}", uuid, DescribeForeign(report));
  } else if (!has_foreign_clock && gpu.has_foreign_clock) {
    log_.info("{}: {}", uuid,
              report.snapshot.is_serving ? "the lock of another program is gone"
                                         : "the lease has ended while another program locks the "
                                           "clock");
  }
  gpu.has_foreign_clock = has_foreign_clock;
  const std::uint64_t resets = report.snapshot.counts.foreign_resets;
  if (resets != std::exchange(gpu.foreign_resets, resets)) {
    log_.warn(
        "{}: the SM clock of the job is not in force (another program unlocked it, or the driver "
        "did not perform the write); the agent sets it again",
        uuid);
  }
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
  SavedState next = state_.state();
  if (auto added = next.Add(wanted); !added) return added;
  if (auto saved = Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the grant could not be saved: {}", saved.error().message);
  }
  return {};
}

Answer<void> GpuManager::Revoke(const Caller& caller, const protocol::Revoke& wanted) {
  if (!caller.is_administrator) {
    return Refuse(Refusal::kNotAllowed, "only root revokes grants (run it as root)");
  }
  SavedState next = state_.state();
  if (auto removed = next.Remove(wanted.grant); !removed) return removed;
  if (auto saved = Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the revocation could not be saved: {}",
                  saved.error().message);
  }
  return {};
}

Result<void> GpuManager::Save(SavedState next) {
  if (next == state_.state() && is_disk_known_) return {};
  auto saved = state_.Save(std::move(next));
  is_disk_known_ = saved.has_value();
  if (saved) return saved;
  ++state_failures_;
  log_.error("{}", saved.error().message);
  return saved;
}

std::optional<device::Setting> GpuManager::RestingOf(const std::string& uuid,
                                                     device::Control control) const {
  const auto gpu = state_.state().resting.find(uuid);
  if (gpu == state_.state().resting.end()) return std::nullopt;
  const auto setting = gpu->second.find(control);
  if (setting == gpu->second.end()) return std::nullopt;
  return setting->second;
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
    for (const Restore& restore : RestoresAfterLease(state_.state(), uuid)) {
      entry.before.push_back({restore.control, restore.setting});
    }
  }
  report.missing_gpus = missing_;
  report.refused_devices = setup_.devices.refused;
  report.leases = table_.leases().size();
  report.ended = ended_;
  report.state_failures = state_failures_;
  return report;
}

protocol::Listing GpuManager::List() const {
  const AgentReport report = Report();
  protocol::Listing listing;
  for (const GpuReport& gpu : report.gpus) {
    const GpuSnapshot& snapshot = gpu.snapshot;
    protocol::GpuStatus status;
    status.index = gpu.info.index.value_or(-1);
    status.uuid = gpu.info.uuid;
    status.name = gpu.info.name;
    status.measure_only = gpu.info.measure_only;
    status.trouble =
        snapshot.setting_trouble.empty() ? snapshot.reading_trouble : snapshot.setting_trouble;
    if (gpu.hold) {
      status.lease = gpu.hold->lease;
      status.job = gpu.hold->owner.job;
      status.uid = gpu.hold->owner.uid;
      status.pid = gpu.hold->owner.process.pid;
      status.held_s = ToSeconds(Now() - gpu.hold->since);
      status.is_restoring = gpu.hold->is_restoring;
    }
    if (gpu.lease) status.slowdown = gpu.lease->slowdown;
    status.setting = SettingInWords(snapshot.setting);
    for (const ControlSetting& before : gpu.before) {
      if (before.control == device::Control::kSmClock) status.before = SettingInWords(before);
    }
    if (snapshot.telemetry) {
      status.sm_clock_mhz = snapshot.telemetry->sm_clock_mhz;
      status.power_w = snapshot.telemetry->power_w;
      status.temperature_c = snapshot.telemetry->temperature_c;
    }
    status.switches = snapshot.counts.switches;
    status.postponed = snapshot.counts.postponed;
    status.most_changes_per_s = gpu.most_changes_per_s;
    status.slow_by = Describe(WhySlow(gpu));
    status.overridden = DescribeForeign(gpu);
    listing.gpus.push_back(std::move(status));
  }
  return listing;
}

}  // namespace perseus::agent
