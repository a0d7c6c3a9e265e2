#include "perseus/runtime/agent/saved_state_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/file.h"
#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/runtime/agent/agent_lock.h"

namespace perseus::agent {
namespace {

using json_file::Node;
using json_file::Throw;
using nlohmann::ordered_json;
using protocol::Refusal;

bool IsForSame(const protocol::Grant& a, const protocol::Grant& b) {
  return a.uid == b.uid && a.cgroup == b.cgroup;
}

template <typename Value>
std::optional<Value> ValueOf(
    const std::map<std::string, std::map<device::Control, Value>>& values_of_gpus,
    const std::string& uuid, device::Control control) {
  const auto gpu = values_of_gpus.find(uuid);
  if (gpu == values_of_gpus.end()) return std::nullopt;
  const auto value = gpu->second.find(control);
  return value == gpu->second.end() ? std::nullopt : std::optional(value->second);
}

std::vector<Restore> RestoresOf(const SavedState& state, const SavedGpu& gpu) {
  std::vector<Restore> restores;
  for (const auto& [control, saved] : gpu.controls) {
    if (!saved.is_changed) continue;
    const SettingBefore& before = saved.before;
    restores.push_back(
        {gpu.uuid, control, before.is_known ? before.setting : state.RestingOf(gpu.uuid, control)});
  }
  return restores;
}

// Whether, after another boot, the control seems to have the setting that the driver's reset left.
bool IsUntouchedSinceBoot(const std::optional<device::SettingReading>& reading) {
  if (!reading) return true;
  return reading->is_known ? !reading->setting.has_value() : reading->hint.empty();
}

constexpr std::string_view kFormat = "perseus-agent-state";
constexpr int kVersion = 2;
constexpr int kVersionWithoutChecksum = 1;
// The depth of file -> gpus -> gpu -> controls -> control -> before -> lower.
constexpr int kMaxJsonDepth = 7;
// In MHz or mW. Far above any clock. As a power, it is 10 kW.
constexpr int kHighestSetting = 10'000'000;
constexpr std::size_t kLongestCgroup = 4096;

constexpr std::array<std::pair<device::Control, std::string_view>, 3> kControlKeys{
    {{device::Control::kSmClock, "sm_clock"},
     {device::Control::kMemoryClock, "memory_clock"},
     {device::Control::kPowerLimit, "power_limit"}}};

constexpr std::string_view kRemedy =
    "until this is fixed, the agent changes no GPU, because it does not know the settings before: "
    "restore a copy of the file, or set the GPUs by hand to what they should be (nvidia-smi -rgc, "
    "-rmc, -pl) and move the file away, which removes all grants and resting settings";

Node Member(const Node& node, std::string_view key) {
  return node.Member(key, "the file was damaged or changed by hand");
}

// Returns a printable text that is not empty, and not longer than any text that the agent writes.
std::string Name(const Node& node, std::size_t longest = protocol::kLongestName) {
  std::string text = node.Text();
  if (text.empty() || text.size() > longest || !IsPrintable(text)) {
    Throw("{} is not 1 to {} printable bytes", node.path, longest);
  }
  return text;
}

std::uint64_t Unsigned(const Node& node, std::uint64_t most) {
  if (!node.value.is_number_unsigned() || node.value.get<std::uint64_t>() > most) {
    Throw("{} is not a whole number from 0 to {}", node.path, most);
  }
  return node.value.get<std::uint64_t>();
}

uid_t UserId(const Node& node) {
  return static_cast<uid_t>(Unsigned(node, std::numeric_limits<uid_t>::max()));
}

device::Setting ReadSetting(const Node& node) {
  node.RequireObject({"lower", "upper"});
  device::Setting setting;
  setting.lower = Member(node, "lower").Count(0, kHighestSetting, "MHz or mW");
  setting.upper = Member(node, "upper").Count(setting.lower, kHighestSetting, "MHz or mW");
  return setting;
}

SettingBefore ReadBefore(const Node& node) {
  if (node.value == "unknown") return {};
  if (node.value == "default") return {true, std::nullopt};
  if (!node.value.is_object()) {
    Throw("{} is neither \"unknown\" nor \"default\" nor a range", node.path);
  }
  return {true, ReadSetting(node)};
}

SavedControl ReadControl(const Node& node) {
  node.RequireObject({"before", "changed"});
  return {ReadBefore(Member(node, "before")), Member(node, "changed").Flag()};
}

Owner ReadOwner(const Node& node) {
  node.RequireObject({"pid", "process_started", "uid", "job"});
  Owner owner;
  owner.process.pid = static_cast<pid_t>(
      Member(node, "pid").Count(0, std::numeric_limits<pid_t>::max(), "a process's number"));
  owner.process.started =
      Unsigned(Member(node, "process_started"), std::numeric_limits<std::uint64_t>::max());
  owner.uid = UserId(Member(node, "uid"));
  owner.job = Name(Member(node, "job"));
  return owner;
}

SavedGpu ReadGpu(const Node& node) {
  node.RequireObject({"uuid", "lease", "owner", "controls"});
  SavedGpu gpu;
  gpu.uuid = Name(Member(node, "uuid"));
  gpu.lease = Name(Member(node, "lease"));
  gpu.owner = ReadOwner(Member(node, "owner"));
  const Node controls = Member(node, "controls");
  controls.RequireObject({kControlKeys[0].second, kControlKeys[1].second, kControlKeys[2].second});
  for (const auto& [control, key] : kControlKeys) {
    if (controls.Has(key)) gpu.controls[control] = ReadControl(Member(controls, key));
  }
  return gpu;
}

protocol::Grant ReadGrant(const Node& node) {
  node.RequireObject({"gpus", "uid", "cgroup"});
  protocol::Grant grant;
  const Node gpus = Member(node, "gpus");
  for (std::size_t i = 0; i < gpus.ListSize(); ++i) grant.gpus.push_back(Name(gpus[i]));
  if (node.Has("uid")) grant.uid = UserId(Member(node, "uid"));
  if (node.Has("cgroup")) {
    grant.cgroup = Name(Member(node, "cgroup"), kLongestCgroup);
    if (!grant.cgroup->starts_with('/')) Throw("{}.cgroup does not begin with /", node.path);
  }
  return grant;
}

void ReadResting(const Node& node, SavedState& state) {
  node.RequireObject(
      {"uuid", kControlKeys[0].second, kControlKeys[1].second, kControlKeys[2].second});
  const std::string uuid = Name(Member(node, "uuid"));
  if (state.resting.contains(uuid)) Throw("{}.uuid: {} appears twice", node.path, uuid);
  for (const auto& [control, key] : kControlKeys) {
    if (node.Has(key)) state.DeclareResting(uuid, control, ReadSetting(Member(node, key)));
  }
  if (!state.resting.contains(uuid)) Throw("{} declares no control", node.path);
}

// The checksum does not depend on spaces or on the order of the keys.
std::string ChecksumOf(nlohmann::json file) {
  file.erase("checksum");
  const std::string text = JsonText(file);
  const auto* const bytes = reinterpret_cast<const Bytef*>(text.data());
  return fmt::format("{:08x}", ::crc32_z(0, bytes, text.size()));
}

void CheckChecksum(const Node& file) {
  const std::string expected = ChecksumOf(file.value);
  const std::string found = Member(file, "checksum").Text();
  if (found == expected) return;
  Throw(
      "checksum is {}, but that of the content is \"{}\": the file was damaged or changed by hand "
      "(if you changed it on purpose, write the second value into the file)",
      Excerpt(found), expected);
}

std::uint64_t ReadVersion(const Node& file) {
  if (!file.value.is_object() || !file.Has("format") || file.value["format"] != kFormat) {
    Throw("is not a saved state of the agent (expected \"format\": \"{}\")", kFormat);
  }
  const std::uint64_t version =
      Unsigned(Member(file, "version"), std::numeric_limits<std::uint32_t>::max());
  if (version > kVersion) {
    Throw("has version {}, from a newer perseus (this one reads version {}: start the newer one)",
          version, kVersion);
  }
  if (version < 1) Throw("version is 0 (expected {})", kVersion);
  return version;
}

SavedState ReadState(const Node& file) {
  const std::uint64_t version = ReadVersion(file);
  file.RequireObject({"format", "version", "checksum", "boot_id", "gpus", "grants", "resting"});
  SavedState state;
  state.boot_id = Name(Member(file, "boot_id"));
  const Node gpus = Member(file, "gpus");
  for (std::size_t i = 0; i < gpus.ListSize(); ++i) {
    SavedGpu gpu = ReadGpu(gpus[i]);
    const std::string uuid = gpu.uuid;
    if (!state.gpus.emplace(uuid, std::move(gpu)).second) {
      Throw("{}.uuid: {} appears twice", gpus[i].path, uuid);
    }
  }
  const Node grants = Member(file, "grants");
  for (std::size_t i = 0; i < grants.ListSize(); ++i) {
    const Answer<void> added = state.Add(ReadGrant(grants[i]));
    if (!added) Throw("{}: {}", grants[i].path, added.error().message);
  }
  const Node resting = Member(file, "resting");
  for (std::size_t i = 0; i < resting.ListSize(); ++i) ReadResting(resting[i], state);
  // This check comes last, because every other error names the place of the damage. If damage
  // changes the version from 2 to 1, the file is still checked, because it has a checksum.
  if (version != kVersionWithoutChecksum || file.Has("checksum")) CheckChecksum(file);
  return state;
}

// ---- Writing ----

ordered_json Json(const device::Setting& setting) {
  return {{"lower", setting.lower}, {"upper", setting.upper}};
}

ordered_json Json(const SettingBefore& before) {
  if (!before.is_known) return "unknown";
  if (!before.setting) return "default";
  return Json(*before.setting);
}

ordered_json Json(const SavedGpu& gpu) {
  ordered_json controls = ordered_json::object();
  for (const auto& [control, key] : kControlKeys) {
    const auto saved = gpu.controls.find(control);
    if (saved == gpu.controls.end()) continue;
    controls[std::string(key)] = {{"before", Json(saved->second.before)},
                                  {"changed", saved->second.is_changed}};
  }
  return {{"uuid", gpu.uuid},
          {"lease", gpu.lease},
          {"owner",
           {{"pid", gpu.owner.process.pid},
            {"process_started", gpu.owner.process.started},
            {"uid", gpu.owner.uid},
            {"job", gpu.owner.job}}},
          {"controls", std::move(controls)}};
}

ordered_json Json(const protocol::Grant& grant) {
  ordered_json json{{"gpus", grant.gpus}};
  if (grant.uid) json["uid"] = *grant.uid;
  if (grant.cgroup) json["cgroup"] = *grant.cgroup;
  return json;
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

std::optional<device::Setting> SavedState::RestingOf(const std::string& uuid,
                                                     device::Control control) const {
  return ValueOf(resting, uuid, control);
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
          is_same_boot || (restore.setting &&
                           IsUntouchedSinceBoot(ValueOf(readings, restore.uuid, restore.control)));
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
      auto reading = ValueOf(readings, changed.uuid, changed.control);
      const bool is_back = reading && reading->is_known && reading->setting == changed.setting;
      if (is_back || std::ranges::find(restores, changed) != restores.end()) continue;
      left.push_back({changed, std::move(reading)});
    }
  }
  return left;
}

Result<SavedState> ParseSavedState(std::string_view text, std::string_view name) {
  Result<SavedState> state = json_file::Read(text, name, kMaxJsonDepth, ReadState);
  if (!state) return Fail("{}; {}", state.error().Message(), kRemedy);
  return state;
}

std::string FormatSavedState(const SavedState& state) {
  ordered_json gpus = ordered_json::array();
  for (const auto& [uuid, gpu] : state.gpus) gpus.push_back(Json(gpu));
  ordered_json grants = ordered_json::array();
  for (const protocol::Grant& grant : state.grants) grants.push_back(Json(grant));
  ordered_json resting = ordered_json::array();
  for (const auto& [uuid, settings] : state.resting) {
    ordered_json entry{{"uuid", uuid}};
    for (const auto& [control, key] : kControlKeys) {
      const auto setting = settings.find(control);
      if (setting != settings.end()) entry[std::string(key)] = Json(setting->second);
    }
    resting.push_back(std::move(entry));
  }
  ordered_json file{{"format", kFormat},
                    {"version", kVersion},
                    {"checksum", ""},
                    {"boot_id", state.boot_id},
                    {"gpus", std::move(gpus)},
                    {"grants", std::move(grants)},
                    {"resting", std::move(resting)}};
  file["checksum"] = ChecksumOf(file);
  // Without this error handler, a name that is not UTF-8 would throw. With it, the check in Save
  // fails.
  return JsonText(file, 2) + "\n";
}

SavedStateFile::SavedStateFile(std::filesystem::path path, SavedState state, Writer write)
    : path_(std::move(path)), state_(std::move(state)), write_(std::move(write)) {
  if (!write_) {
    write_ = [](const std::filesystem::path& to, std::string_view text) {
      return WriteFileAtomically(to, text);
    };
  }
}

Result<SavedStateFile> SavedStateFile::Open(std::filesystem::path path,
                                            std::string_view boot_id_now, Writer write) {
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() ==
      std::filesystem::file_type::not_found) {
    SavedState empty;
    empty.boot_id = boot_id_now;
    SavedStateFile missing(std::move(path), std::move(empty), std::move(write));
    missing.is_missing_ = true;
    return missing;
  }
  // Reading a device file might never end.
  if (!std::filesystem::is_regular_file(path, error)) {
    return Fail("{} is not a regular file; {}", path.string(), kRemedy);
  }
  const Result<std::string> text = ReadFile(path);
  if (!text) return FailAs(text.error().kind, "{}; {}", text.error().Message(), kRemedy);
  PERSEUS_ASSIGN_OR_RETURN(SavedState state, ParseSavedState(*text, path.string()));
  SavedStateFile file(std::move(path), std::move(state), std::move(write));
  file.is_on_disk_ = *text == FormatSavedState(file.state_);  // False for an older version.
  return file;
}

Result<void> SavedStateFile::Save(SavedState next) {
  if (is_on_disk_ && next == state_) return {};
  const std::string text = FormatSavedState(next);
  const Result<SavedState> read = json_file::Read(text, path_.string(), kMaxJsonDepth, ReadState);
  if (!read || *read != next) {
    return Fail(InFile(path_.string()),
                "not written, because it could not be read again{}{} (please report this)",
                read ? "" : ": ", read ? "" : read.error().Message());
  }
  const bool was_on_disk = std::exchange(is_on_disk_, false);
  const bool was_missing = std::exchange(is_missing_, false);
  if (Result<void> written = write_(path_, text); !written) {
    // The file is replaced in one step. If the old file is still there, this step did not happen.
    std::error_code ignored;
    is_missing_ = was_missing && std::filesystem::symlink_status(path_, ignored).type() ==
                                     std::filesystem::file_type::not_found;
    const auto now = was_on_disk ? ReadFile(path_) : Result<std::string>("");
    const auto left = now ? ParseSavedState(*now, path_.string()) : Result<SavedState>(Fail(now));
    is_on_disk_ = left && *left == state_;
    return written;
  }
  is_on_disk_ = true;
  state_ = std::move(next);
  return {};
}

Result<FileDescriptor> LockSavedState(const std::filesystem::path& state) {
  auto lock = LockFile(LockPathOf(state));
  if (!lock) return lock;
  if (*lock) return lock;
  return FailAs(ErrorKind::kSystem, InFile(state.string()),
                "another agent that is running uses this state (choose another `state`)");
}

std::filesystem::path LockPathOf(std::filesystem::path state) {
  state += ".lock";
  return state;
}

Result<void> AgentState::Save(SavedState next) {
  if (next == file_.state() && IsSaved()) return {};
  auto saved = file_.Save(std::move(next));
  const std::string failure = saved ? "" : saved.error().Message();
  // Saves are repeated several times a second, so each cause is logged once.
  const bool is_new = std::exchange(failure_, failure) != failure;
  if (saved) return saved;
  ++failures_;
  if (is_new) log_.error("{}", failure);
  return saved;
}

}  // namespace perseus::agent
