#include "perseus/runtime/agent/saved_state.h"

#include <algorithm>
#include <set>
#include <utility>

#include "perseus/base/excerpt.h"

namespace perseus::agent {
namespace {

using protocol::Refusal;

bool IsForSame(const protocol::Grant& a, const protocol::Grant& b) {
  return a.uid == b.uid && a.cgroup == b.cgroup;
}

// The setting to which a changed control returns.
std::optional<device::Setting> Wanted(const SavedState& state, const SavedGpu& gpu,
                                      device::Control control, const SettingBefore& before) {
  if (before.is_known) return before.setting;
  const auto resting = state.resting.find(gpu.uuid);
  if (resting == state.resting.end()) return std::nullopt;
  const auto setting = resting->second.find(control);
  if (setting == resting->second.end()) return std::nullopt;
  return setting->second;
}

std::vector<Restore> RestoresOf(const SavedState& state, const SavedGpu& gpu) {
  std::vector<Restore> restores;
  for (const auto& [control, saved] : gpu.controls) {
    if (!saved.is_changed) continue;
    restores.push_back({gpu.uuid, control, Wanted(state, gpu, control, saved.before)});
  }
  return restores;
}

std::optional<device::SettingReading> ReadingOf(const Readings& readings, const Restore& restore) {
  const auto gpu = readings.find(restore.uuid);
  if (gpu == readings.end()) return std::nullopt;
  const auto found = gpu->second.find(restore.control);
  if (found == gpu->second.end()) return std::nullopt;
  return found->second;
}

// After another boot: whether the control seems to have the setting that the driver's reset left.
bool IsUntouchedSinceBoot(const std::optional<device::SettingReading>& reading) {
  if (!reading) return true;
  return reading->is_known ? !reading->setting.has_value() : reading->hint.empty();
}

}  // namespace

SettingBefore Before(const device::SettingReading& reading) {
  if (!reading.is_known) return {};
  return {true, reading.setting};
}

void SavedState::Take(SavedGpu gpu) {
  const auto [place, is_new] = gpus.try_emplace(gpu.uuid, gpu);
  if (is_new) return;
  for (const auto& [control, saved] : place->second.controls) {
    if (saved.is_changed) gpu.controls[control] = saved;
  }
  place->second = std::move(gpu);
}

bool SavedState::WillChange(std::string_view uuid, device::Control control,
                            const SettingBefore& found) {
  const auto gpu = gpus.find(std::string(uuid));
  if (gpu == gpus.end()) return false;
  SavedControl& saved = gpu->second.controls[control];
  if (!saved.is_changed) saved = {found, true};
  return true;
}

void SavedState::Restored(std::string_view uuid, device::Control control) {
  const auto gpu = gpus.find(std::string(uuid));
  if (gpu == gpus.end()) return;
  const auto saved = gpu->second.controls.find(control);
  if (saved != gpu->second.controls.end()) saved->second.is_changed = false;
}

bool SavedState::GiveBack(std::string_view uuid) {
  const auto gpu = gpus.find(std::string(uuid));
  if (gpu == gpus.end()) return true;
  const auto& controls = gpu->second.controls;
  const bool has_changes = std::any_of(controls.begin(), controls.end(),
                                       [](const auto& entry) { return entry.second.is_changed; });
  if (has_changes) return false;
  gpus.erase(gpu);
  return true;
}

Answer<void> SavedState::Add(const protocol::Grant& grant) {
  if (grant.uid.has_value() == grant.cgroup.has_value()) {
    return Refuse(Refusal::kMalformed,
                  "a grant is for a user or for a cgroup (name exactly one of the two)");
  }
  if (grant.gpus.empty()) return Refuse(Refusal::kMalformed, "a grant names no GPU (name some)");
  auto place = std::find_if(grants.begin(), grants.end(),
                            [&](const protocol::Grant& other) { return IsForSame(other, grant); });
  if (place == grants.end()) {
    place = grants.insert(grants.end(), protocol::Grant{{}, grant.uid, grant.cgroup});
  }
  std::set<std::string> gpus_granted(place->gpus.begin(), place->gpus.end());
  gpus_granted.insert(grant.gpus.begin(), grant.gpus.end());
  place->gpus.assign(gpus_granted.begin(), gpus_granted.end());
  return {};
}

Answer<void> SavedState::Remove(const protocol::Grant& grant) {
  const auto place = std::find_if(grants.begin(), grants.end(), [&](const protocol::Grant& other) {
    return IsForSame(other, grant);
  });
  std::set<std::string> left;
  if (place != grants.end()) left.insert(place->gpus.begin(), place->gpus.end());
  for (const std::string& gpu : std::set<std::string>(grant.gpus.begin(), grant.gpus.end())) {
    if (left.erase(gpu) != 0) continue;
    return Refuse(Refusal::kMalformed, "{} is not granted to {} (nothing was revoked)",
                  Excerpt(gpu),
                  grant.uid      ? fmt::format("user {}", *grant.uid)
                  : grant.cgroup ? fmt::format("cgroup {}", Excerpt(*grant.cgroup))
                                 : std::string("nobody"));
  }
  if (place == grants.end()) return {};
  place->gpus.assign(left.begin(), left.end());
  if (left.empty()) grants.erase(place);
  return {};
}

void SavedState::DeclareResting(const std::string& uuid, device::Control control,
                                const std::optional<device::Setting>& setting) {
  if (setting) {
    resting[uuid][control] = *setting;
    return;
  }
  const auto gpu = resting.find(uuid);
  if (gpu == resting.end()) return;
  gpu->second.erase(control);
  if (gpu->second.empty()) resting.erase(gpu);
}

void SavedState::BeginBoot(std::string_view boot_id_now, const std::vector<Restore>& restores) {
  boot_id = boot_id_now;
  for (auto entry = gpus.begin(); entry != gpus.end();) {
    bool has_changes = false;
    for (auto& [control, saved] : entry->second.controls) {
      saved.is_changed = std::any_of(
          restores.begin(), restores.end(), [&, which = control](const Restore& restore) {
            return restore.uuid == entry->first && restore.control == which;
          });
      has_changes = has_changes || saved.is_changed;
    }
    entry = has_changes ? std::next(entry) : gpus.erase(entry);
  }
}

std::vector<Restore> RestoresAfterLease(const SavedState& state, std::string_view uuid) {
  const auto gpu = state.gpus.find(std::string(uuid));
  return gpu == state.gpus.end() ? std::vector<Restore>() : RestoresOf(state, gpu->second);
}

std::vector<Restore> RestoresAfterStart(const SavedState& state, std::string_view boot_id_now,
                                        const Readings& readings) {
  const bool is_same_boot = state.boot_id == boot_id_now;
  std::vector<Restore> restores;
  for (const auto& [uuid, gpu] : state.gpus) {
    for (Restore& restore : RestoresOf(state, gpu)) {
      const bool is_wanted =
          is_same_boot || (restore.setting && IsUntouchedSinceBoot(ReadingOf(readings, restore)));
      if (is_wanted) restores.push_back(std::move(restore));
    }
  }
  return restores;
}

std::vector<NotRestored> NotRestoredAfterStart(const SavedState& state,
                                               const std::vector<Restore>& restores,
                                               const Readings& readings) {
  std::vector<NotRestored> left;
  for (const auto& [uuid, gpu] : state.gpus) {
    for (const Restore& changed : RestoresOf(state, gpu)) {
      auto reading = ReadingOf(readings, changed);
      const bool is_back = reading && reading->is_known && reading->setting == changed.setting;
      if (is_back || std::ranges::find(restores, changed) != restores.end()) continue;
      left.push_back({changed, std::move(reading)});
    }
  }
  return left;
}

}  // namespace perseus::agent
