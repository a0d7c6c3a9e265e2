// Tests leases and saved state together, as the event loop uses them, in a simulated world. In this
// world, other programs also set GPUs, disks become full, drivers fail, machines boot, and the
// agent may die between any two steps. In every case, each GPU must end with its rightful setting.
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <set>

#include "perseus/base/units.h"
#include "perseus/runtime/agent/lease_table.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::agent {
namespace {

namespace fs = std::filesystem;
using ControlOf = std::pair<std::string, device::Control>;  // A control of a GPU.

constexpr int kGpus = 5;

struct Death {};

std::string UuidOf(std::uint64_t index) { return fmt::format("GPU-{}", index); }

// Everything outside the agent: the GPUs, the programs that set them, and the disk.
struct World {
  struct Gauge {
    std::optional<device::Setting> actual;
    // The setting that the control should have when no lease has the GPU.
    std::optional<device::Setting> rightful;
    bool is_readable = true;
    bool gives_hints = false;
    // The setting to restore, if the control is saved as changed.
    std::optional<device::Setting> wanted;
    // If the control is saved as changed: its rightful setting at that time. Empty after anything
    // else has set the control.
    std::optional<std::optional<device::Setting>> untouched;
  };

  explicit World(std::uint64_t seed) : random(seed) {
    unsigned kind = 0;  // The kind of the next GPU. All kinds occur.
    for (std::uint64_t gpu = 0; gpu < kGpus; ++gpu) {
      for (device::Control control : device::kAllControls) {
        Gauge& gauge = gauges[{UuidOf(gpu), control}];
        gauge.is_readable = (kind & 1U) != 0;
        gauge.gives_hints = (kind & 2U) != 0;
        if ((kind & 4U) != 0) on_disk.DeclareResting(UuidOf(gpu), control, Any());
        ++kind;
      }
    }
    on_disk.boot_id = BootId();
  }

  bool Chance(std::uint64_t percent) { return random() % 100 < percent; }
  std::uint64_t Below(std::uint64_t count) { return random() % count; }
  device::Setting Any() {
    const int mhz = 200 + static_cast<int>(Below(1000));
    return {mhz, mhz};
  }
  std::string BootId() const { return fmt::format("boot-{:03}", boots); }

  device::SettingReading Read(const ControlOf& control) const {
    const Gauge& gauge = gauges.at(control);
    if (gauge.is_readable) return {true, gauge.actual, ""};
    return {false, std::nullopt, gauge.gives_hints && gauge.actual ? "it seems locked" : ""};
  }
  bool IsOwed(const ControlOf& control) const {
    const auto gpu = on_disk.gpus.find(control.first);
    if (gpu == on_disk.gpus.end()) return false;
    const auto saved = gpu->second.controls.find(control.second);
    return saved != gpu->second.controls.end() && saved->second.is_changed;
  }
  std::optional<device::Setting> Resting(const ControlOf& control) const {
    const auto gpu = on_disk.resting.find(control.first);
    if (gpu == on_disk.resting.end() || !gpu->second.contains(control.second)) return std::nullopt;
    return gpu->second.at(control.second);
  }

  // Sets a control, as a program does that does not know the agent.
  void SomebodySets(const ControlOf& control, const std::optional<device::Setting>& setting) {
    Gauge& gauge = gauges.at(control);
    gauge.actual = setting;
    if (!IsOwed(control)) {
      gauge.rightful = setting;
    } else if (on_disk.boot_id != BootId()) {
      // After a boot, the agent does not change the control if its setting differs from the setting
      // that the boot left.
      const bool is_seen = gauge.is_readable || gauge.gives_hints;
      gauge.rightful = !gauge.wanted || (is_seen && setting) ? setting : gauge.wanted;
    }
  }
  void Boot() {
    ++boots;
    for (auto& [control, gauge] : gauges) {
      gauge.actual.reset();
      gauge.untouched.reset();
      gauge.rightful = IsOwed(control) ? gauge.wanted : std::nullopt;
    }
  }
  void WriteDisk(SavedState next) {
    const SavedState before = std::exchange(on_disk, std::move(next));
    for (auto& [control, gauge] : gauges) {
      const bool is_owed = IsOwed(control);
      const auto gpu = before.gpus.find(control.first);
      const bool was_owed = gpu != before.gpus.end() &&
                            gpu->second.controls.contains(control.second) &&
                            gpu->second.controls.at(control.second).is_changed;
      if (is_owed && !was_owed) {
        gauge.untouched = gauge.rightful;
        // From now on, the former setting is unknown.
        if (!gauge.is_readable) gauge.rightful = Resting(control);
        gauge.wanted = gauge.rightful;
      } else if (was_owed && !is_owed && gauge.untouched) {
        gauge.rightful = *std::exchange(gauge.untouched, std::nullopt);
      }
    }
  }
  void AgentSets(const ControlOf& control, const std::optional<device::Setting>& setting) {
    gauges.at(control).actual = setting;
    gauges.at(control).untouched.reset();
  }

  std::mt19937_64 random;
  std::map<ControlOf, Gauge> gauges;
  SavedState on_disk;
  int boots = 0;
  bool is_kind = false;  // True: nothing fails and no process dies.
};

class Agent {
 public:
  // Starts like an agent. May die while it starts.
  Agent(World& world, const fs::path& path, Nanoseconds now)
      : world_(world), table_(EpochOf(world.BootId(), now)), file_(Open(path)) {
    Readings readings;
    for (const auto& [control, gauge] : world_.gauges) {
      readings[control.first][control.second] = world_.Read(control);
    }
    const std::vector<Restore> restores =
        RestoresAfterStart(file_.state(), world_.BootId(), readings);
    SavedState next = file_.state();
    next.BeginBoot(world_.BootId(), restores);
    while (!file_.Save(next)) MayDie();
    for (const auto& [uuid, gpu] : file_.state().gpus) {
      table_.StartRestoring(uuid, gpu.lease, gpu.owner, now);
    }
  }

  std::optional<Lease> Acquire(const LeaseTable::Wish& wish, Nanoseconds now) {
    Answer<Lease> lease = table_.Acquire(wish, now);
    if (!lease) return std::nullopt;
    MayDie();
    SavedState next = file_.state();
    for (const std::string& uuid : lease->gpus) {
      SavedGpu gpu;
      gpu.uuid = uuid;
      gpu.lease = lease->id;
      gpu.owner = lease->owner;
      if (world_.Chance(50)) {
        gpu.controls[device::Control::kSmClock] = {
            Before(world_.Read({uuid, device::Control::kSmClock})), true};
      }
      next.Take(std::move(gpu));
    }
    if (!file_.Save(std::move(next))) {
      while (!file_.Save(file_.state())) MayDie();
      EXPECT_TRUE(table_.Cancel(lease->id));
      return std::nullopt;
    }
    return *lease;
  }

  void Change(const ControlOf& control) {
    SavedState next = file_.state();
    SavedControl& saved = next.gpus.at(control.first).controls[control.second];
    if (!saved.is_changed) saved = {Before(world_.Read(control)), true};
    MayDie();
    if (!file_.Save(std::move(next))) return;
    MayDie();
    EXPECT_TRUE(world_.IsOwed(control)) << "written to before it was saved";
    if (!world_.is_kind && world_.Chance(10)) return;  // The driver refuses.
    world_.AgentSets(control, world_.Any());
    MayDie();
  }

  // Returns whether the GPU is free again.
  bool GiveBack(const std::string& uuid) {
    SavedState next = file_.state();
    for (const Restore& restore : RestoresAfterLease(next, uuid)) {
      MayDie();
      if (!world_.is_kind && world_.Chance(20))
        continue;  // The driver refuses until the next attempt.
      world_.AgentSets({uuid, restore.control}, restore.setting);
      next.Restored(uuid, restore.control);
    }
    const bool is_whole = next.GiveBack(uuid);
    MayDie();
    if (!file_.Save(std::move(next)) || !is_whole) return false;
    MayDie();
    return table_.Restored(uuid, table_.HoldOf(uuid)->lease);
  }

  void Grant(const protocol::Grant& grant, bool is_given) {
    SavedState next = file_.state();
    const Answer<void> changed = is_given ? next.Add(grant) : next.Remove(grant);
    if (changed && !file_.Save(std::move(next))) MayDie();
  }

  LeaseTable& table() { return table_; }
  const SavedState& state() const { return file_.state(); }

 private:
  void MayDie() {
    if (!world_.is_kind && world_.Chance(2)) throw Death();
  }

  SavedStateFile Open(const fs::path& path) {
    std::ofstream(path) << FormatSavedState(world_.on_disk);
    Result<SavedStateFile> file = SavedStateFile::Open(
        path, world_.BootId(), [this](const fs::path&, std::string_view text) -> Result<void> {
          MayDie();
          const bool is_full = !world_.is_kind && world_.Chance(5);
          // If the directory cannot be flushed, saving fails with the new file already in place.
          if (is_full && world_.Chance(50)) return FailAs(ErrorKind::kSystem, "disk full");
          world_.WriteDisk(*ParseSavedState(text, "disk"));
          MayDie();
          if (is_full) return FailAs(ErrorKind::kSystem, "flush");
          return {};
        });
    if (!file) throw std::runtime_error(file.error().Message());
    return std::move(*file);
  }

  World& world_;
  LeaseTable table_;
  SavedStateFile file_;
};

class SurvivalTest : public ::testing::TestWithParam<int> {
 protected:
  // Lets the world act while no agent runs.
  void StartAgent() {
    while (!agent_) {
      if (world_.Chance(30)) world_.Boot();
      for (int i = 0; i < 8; ++i) SomebodySets();
      now_ += kSecond;
      try {
        agent_.emplace(world_, directory_ / "state.json", now_);
      } catch (const Death&) {
      }
    }
  }
  ControlOf AnyControl() {
    return {UuidOf(world_.Below(kGpus)),
            device::kAllControls[world_.Below(std::size(device::kAllControls))]};
  }
  // Sets only GPUs that are not leased, because an operator sees the holder of the others.
  void SomebodySets() {
    const ControlOf control = AnyControl();
    if (agent_ && agent_->table().HoldOf(control.first) != nullptr) return;
    std::optional<device::Setting> setting;
    if (world_.Chance(70)) setting = world_.Any();
    world_.SomebodySets(control, setting);
  }

  void Acquire() {
    LeaseTable::Wish wish;
    const std::uint64_t who = world_.Below(4);
    wish.owner = {{static_cast<pid_t>(who), who}, static_cast<uid_t>(who), "job"};
    wish.connection = who;
    wish.heartbeat_period = 3 * kSecond;
    std::set<std::string> gpus;
    for (std::uint64_t count = 1 + world_.Below(3); gpus.size() < count;) {
      gpus.insert(UuidOf(world_.Below(kGpus)));
    }
    wish.gpus.assign(gpus.begin(), gpus.end());
    const std::optional<Lease> lease = agent_->Acquire(wish, now_);
    if (!lease) return;
    EXPECT_TRUE(ids_.insert(lease->id).second) << lease->id << " was given before";
    leases_[lease->id] = *lease;
  }
  void Ended(const std::vector<Lease>& leases) {
    for (const Lease& lease : leases) {
      EXPECT_EQ(leases_.erase(lease.id), 1U);
      for (const std::string& gpu : lease.gpus) {
        EXPECT_TRUE(agent_->table().HoldOf(gpu)->is_restoring);
      }
    }
  }
  void EndOne() {
    if (leases_.empty()) return;
    const Lease lease = leases_.begin()->second;
    LeaseTable& table = agent_->table();
    switch (world_.Below(4)) {
      case 0:
        return Ended({table.Release(lease.id, lease.connection, now_).value()});
      case 1:
        return Ended({table.ReleaseGpu(lease.gpus[0], {lease.owner.uid, false}, now_).value()});
      case 2:
        return Ended(table.EndOfConnection(lease.connection, now_));
      default:
        return Ended(table.EndOfProcess(lease.owner.process, now_));
    }
  }
  void TimePasses() {
    now_ += kSecond / 2;
    for (const auto& [id, lease] : leases_) {
      if (world_.Chance(60)) agent_->table().Beat(id, world_.random(), now_);
    }
    Ended(agent_->table().Expire(now_));
  }
  void GiveBackOne() {
    const std::string uuid = UuidOf(world_.Below(kGpus));
    const GpuHold* hold = agent_->table().HoldOf(uuid);
    if (hold == nullptr || !hold->is_restoring || !agent_->GiveBack(uuid)) return;
    EXPECT_EQ(agent_->table().HoldOf(uuid), nullptr);
  }
  void ChangeOne() {
    const ControlOf control = AnyControl();
    const GpuHold* hold = agent_->table().HoldOf(control.first);
    if (hold != nullptr && !hold->is_restoring) agent_->Change(control);
  }
  void GrantOne() {
    protocol::Grant grant{{UuidOf(world_.Below(kGpus))}, std::nullopt, std::nullopt};
    grant.uid = static_cast<uid_t>(world_.Below(3));
    agent_->Grant(grant, world_.Chance(60));
  }

  void Step() {
    const std::uint64_t dice = world_.Below(100);
    if (dice < 15) return Acquire();
    if (dice < 45) return ChangeOne();
    if (dice < 55) return EndOne();
    if (dice < 75) return GiveBackOne();
    if (dice < 85) return TimePasses();
    if (dice < 95) return SomebodySets();
    if (dice < 98) return GrantOne();
    throw Death();
  }

  void CheckInvariants() {
    std::map<std::string, std::string> holders;
    for (const auto& [id, lease] : leases_) {
      const Lease* known = agent_->table().Find(id);
      ASSERT_NE(known, nullptr);
      for (const std::string& gpu : lease.gpus) {
        ASSERT_TRUE(holders.emplace(gpu, id).second) << gpu << " has two leases";
      }
    }
    ASSERT_EQ(agent_->table().leases().size(), leases_.size());
    for (std::uint64_t index = 0; index < kGpus; ++index) {
      const std::string uuid = UuidOf(index);
      const GpuHold* hold = agent_->table().HoldOf(uuid);
      ASSERT_EQ(hold != nullptr && !hold->is_restoring, holders.contains(uuid));
      if (hold == nullptr) {
        for (device::Control control : device::kAllControls) {
          const World::Gauge& gauge = world_.gauges.at({uuid, control});
          ASSERT_EQ(gauge.actual, gauge.rightful) << uuid << " " << NameOf(control);
        }
      } else if (!hold->is_restoring) {
        ASSERT_TRUE(world_.on_disk.gpus.contains(uuid)) << uuid << " is lent and not saved";
        ASSERT_EQ(world_.on_disk.gpus.at(uuid).lease, holders.at(uuid));
      }
    }
  }

  TemporaryDirectory directory_;
  World world_{static_cast<std::uint64_t>(GetParam())};
  std::optional<Agent> agent_;
  Nanoseconds now_ = 0;
  std::map<std::string, Lease> leases_;  // The leases that clients believe to have, by id.
  std::set<std::string> ids_;
};

TEST_P(SurvivalTest, FreeGpusHaveTheirRightfulSettings) {
  constexpr int kSteps = 5000;
  int deaths = 0;
  for (int step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    try {
      StartAgent();
      Step();
    } catch (const Death&) {
      ++deaths;
      agent_.reset();
      leases_.clear();
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(CheckInvariants());
  }
  EXPECT_GT(deaths, 50);
  EXPECT_GT(ids_.size(), 100U);

  world_.is_kind = true;
  agent_.reset();
  leases_.clear();
  StartAgent();
  for (std::uint64_t index = 0; index < kGpus; ++index) {
    const std::string uuid = UuidOf(index);
    if (agent_->table().HoldOf(uuid) == nullptr) continue;
    EXPECT_TRUE(agent_->GiveBack(uuid));
  }
  CheckInvariants();
  EXPECT_TRUE(world_.on_disk.gpus.empty());
}

INSTANTIATE_TEST_SUITE_P(Seeds, SurvivalTest, ::testing::Range(1, 5));

}  // namespace
}  // namespace perseus::agent
