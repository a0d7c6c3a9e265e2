// The saved state on disk: one JSON file, replaced as a whole and flushed. So after a crash at any
// time, the disk has either the old state or the new state.
//
//   {"format": "perseus-agent-state", "version": 2, "checksum": "5f1c09ae", "boot_id": "9b2d…",
//    "gpus": [{"uuid": "GPU-1f…", "lease": "9b2d61c4-5265c00-12",
//              "owner": {"pid": 4242, "process_started": 3521262, "uid": 1000, "job": "llama-7b"},
//              "controls": {"sm_clock": {"before": "unknown", "changed": true},
//                           "memory_clock": {"before": "default", "changed": false},
//                           "power_limit": {"before": {"lower": 300000, "upper": 300000},
//                                           "changed": false}}}],
//    "grants": [{"gpus": ["GPU-1f…"], "cgroup": "/slurm/job_17"}],
//    "resting": [{"uuid": "GPU-1f…", "sm_clock": {"lower": 210, "upper": 1410}}]}
// Clocks are in MHz, and power limits in mW. A process that can write this file decides what the
// agent does to GPUs. So the file belongs in a directory of root.
//
// The checksum is the CRC-32 (of zlib) of everything else: the file's JSON without "checksum", with
// sorted keys and no spaces. It is a key of the JSON, not a line behind the JSON, so that any
// editor and any JSON tool can show and reformat the file. It detects every changed character that
// the reader would otherwise accept, such as a changed character in the boot id. It does not
// protect against a deliberate change, because a process that can write the file can also write a
// new checksum. If the checksum is wrong, the error message contains the right one. A person who
// changed the file by hand, and knows that the change is right, can write this checksum into the
// file.
//
// A file with a wrong checksum is an error like all other damage: no agent starts until a person
// has decided. A restore from the part that still seems right could set another GPU, or a wrong
// power limit. An agent that continues without the file would take its predecessor's lock for the
// setting of an administrator. Until the person has decided, training runs without Perseus, and the
// alert for a missing agent fires.
//
// Version 1 had no checksum. An agent reads version 1, and replaces it at the first Save, which
// every agent does at its start. Agents of version 1 refuse version 2; docs/how-to/upgrade.md says
// how to go back.
//
// Not thread-safe: one thread owns it.
//
// Invariants:
//  1. state() is the state that was saved last. It never has changes that could not be saved.
//  2. Nothing is written that could not be read again.
//  3. If a file cannot be read completely or has a wrong checksum, it is not used at all, and is
//     left unchanged.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/owner.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

// The state that must survive the agent: the original settings of each GPU that the agent changed,
// the grants, and the resting clocks that an administrator declared. SavedStateFile keeps it on
// disk.
//
// It is a value: change a copy, save the copy, and continue with the copy.
//
// Thread safety: a value without shared state.
//
// This order survives a crash at any point (write-ahead):
//  1. Take(): a GPU is saved with its lease before the client gets the GPU. Each control that the
//     lease will change has been read, and is saved as changed.
//  2. Restored(): called after the driver accepted the old setting, and a reading confirmed it.
//  3. GiveBack(): called when no control of the GPU is changed any more.
// After a crash between two of these steps, a control may be saved as changed although it is not
// changed. Such a control is restored like any other, to its current setting. If the driver cannot
// report the current setting, the control is restored to the setting that the end of the lease
// would have restored.
//
// Invariants:
//  1. A GPU has at most one entry.
//  2. While a control is changed, its saved original setting is not overwritten. A new reading
//     would return the agent's own setting.
//  3. Each user and each cgroup has at most one grant. Its GPUs are in ascending order, each once.

// The setting of a control before a lease. It may be unknown, the driver's default, or a setting.
struct SettingBefore {
  bool is_known = false;  // False: the driver could not report it.
  // Empty: the driver's default. Has no meaning unless `is_known`.
  std::optional<device::Setting> setting;
  friend bool operator==(const SettingBefore&, const SettingBefore&) = default;
};
SettingBefore Before(const device::SettingReading& reading);

struct SavedControl {
  SettingBefore before;
  bool is_changed = false;  // The agent has changed it, or is about to.
  friend bool operator==(const SavedControl&, const SavedControl&) = default;
};

struct SavedGpu {
  std::string uuid;
  std::string lease;
  Owner owner;
  std::map<device::Control, SavedControl> controls;
  friend bool operator==(const SavedGpu&, const SavedGpu&) = default;
};

// A control to restore.
struct Restore {
  std::string uuid;
  device::Control control = device::Control::kSmClock;
  std::optional<device::Setting> setting;  // Empty: the driver's default.
  friend bool operator==(const Restore&, const Restore&) = default;
};

// What the drivers report after a start. GPUs and controls that cannot be read are not in this map.
using Readings =
    std::map<std::string, std::map<device::Control, device::SettingReading>>;  // By UUID.

struct SavedState {
  std::string boot_id;                   // The boot in which it was saved.
  std::map<std::string, SavedGpu> gpus;  // By UUID.
  std::vector<protocol::Grant> grants;
  // The setting to which a control returns if the driver could not report the setting before. By
  // UUID.
  std::map<std::string, std::map<device::Control, device::Setting>> resting;
  friend bool operator==(const SavedState&, const SavedState&) = default;

  // Gives the GPU to a lease. What an earlier lease left changed stays as it was saved.
  void Take(SavedGpu gpu);
  void Restored(std::string_view uuid, device::Control control);
  // Returns false, and does nothing, if the GPU still has changed controls.
  bool GiveBack(std::string_view uuid);

  // Adds GPUs to the grant of the user or cgroup. Refuses (kMalformed) a grant for neither or both.
  Answer<void> Add(const protocol::Grant& grant);
  // Removes these GPUs from the grant of the user or cgroup. Refuses (kMalformed), and removes
  // none, if one of them was not granted.
  Answer<void> Remove(const protocol::Grant& grant);

  // Declares the setting to which a control returns. An empty setting removes the declaration.
  void DeclareResting(const std::string& uuid, device::Control control,
                      const std::optional<device::Setting>& setting);
  // The declared setting that the control returns to. nullopt: none was declared.
  std::optional<device::Setting> RestingOf(const std::string& uuid, device::Control control) const;

  // Call this function after RestoresAfterStart. From now on, the state belongs to this boot. Only
  // controls in `restores` count as changed, and GPUs without such controls are removed.
  void BeginBoot(std::string_view boot_id_now, const std::vector<Restore>& restores);
};

// What to restore when a lease of the GPU ends: every changed control, to its setting before the
// lease. If the driver could not report the setting before the lease, then to the declared resting
// setting. If no resting setting was declared, then to the default.
std::vector<Restore> RestoresAfterLease(const SavedState& state, std::string_view uuid);

// What to restore after the agent has started, for any end of its predecessor.
//
// In the same boot: the same as after a lease, for all GPUs. If the driver was reloaded or the GPU
// was reset since, the settings were lost; they are restored anyway. A setting that another program
// made between the two agents is lost, because it looks like a setting that the first agent left.
//
// After another boot: the driver's reset has removed the agent's settings, and the settings before
// them. So only a setting that was found before, or is declared as resting, is restored. The
// restore depends on the reading:
//   the default                 restored
//   not reported by the driver  restored, unless the driver hints at a lock
//   not readable at all         restored when the GPU can be reached again
//   any other setting           left alone, because another program set it after the boot
// NotRestoredAfterStart returns the controls that must not be forgotten without a warning.
// Controls that the agent never changed are never touched. `boot_id_now` must not be empty.
std::vector<Restore> RestoresAfterStart(const SavedState& state, std::string_view boot_id_now,
                                        const Readings& readings);

// A changed control that is not restored, and the driver's report of it.
struct NotRestored {
  Restore wanted;
  std::optional<device::SettingReading> reading;  // Empty if it cannot be read.
};

// The changed controls that are not in `restores`, the result of RestoresAfterStart. BeginBoot
// forgets these controls, so the caller warns about each of them. The reason: the saved boot id may
// be wrong, such as in a damaged file without a checksum. Then the agent's own lock looks like the
// lock of another program. Leaves out a control whose reading equals its setting before the lease.
// After a reboot this is the usual case if the driver reports locks. If the driver does not report
// locks, these warnings appear only on a node that stopped without ending its agent in order.
std::vector<NotRestored> NotRestoredAfterStart(const SavedState& state,
                                               const std::vector<Restore>& restores,
                                               const Readings& readings);

// Fails (kInput) for an invalid file. The message says the place in the file, what the agent does,
// and the remedy. `name` is the file's name in messages.
Result<SavedState> ParseSavedState(std::string_view text, std::string_view name);
std::string FormatSavedState(const SavedState& state);

// Makes this process the state's only owner for as long as the descriptor is open. When the process
// ends, the kernel releases the lock. A process that saves the state has to hold this lock. Fails
// (kSystem) if another process has it.
Result<FileDescriptor> LockSavedState(const std::filesystem::path& state);
// The file that LockSavedState locks.
std::filesystem::path LockPathOf(std::filesystem::path state);

class SavedStateFile {
 public:
  // Replaces the content of the file in one step. The step survives a power failure.
  using Writer =
      std::function<Result<void>(const std::filesystem::path& path, std::string_view contents)>;

  // Reads the state at `path`. If the file does not exist, the state is empty, and belongs to the
  // boot `boot_id_now`; the first Save writes it. An existing state keeps its own boot (see
  // RestoresAfterStart). Fails in the same cases as ReadFile and ParseSavedState. After a failure,
  // the agent must change no GPU, because it does not know the settings before. `write` is for
  // tests. Empty: WriteFileAtomically.
  static Result<SavedStateFile> Open(std::filesystem::path path, std::string_view boot_id_now,
                                     Writer write = {});

  const SavedState& state() const { return state_; }

  // Saves `next`. After success, `next` is on disk. After a failure, state() is the old state, and
  // the caller must not do what had to be saved first.
  Result<void> Save(SavedState next);

  // Whether the disk certainly has state(). Usually the disk has state() even after a Save that
  // failed: for example, a full disk leaves the old file. A missing file is the empty state. If
  // IsSaved() is false, either the old or the new state may be on disk until a Save succeeds. Each
  // of the two is right for a GPU that nobody touches meanwhile. So if IsSaved() is false, repeat
  // Save(state()). Do so before a GPU that could not be saved as taken counts as free again
  // (LeaseTable::Cancel).
  bool IsSaved() const { return is_on_disk_ || is_missing_; }

 private:
  SavedStateFile(std::filesystem::path path, SavedState state, Writer write);

  std::filesystem::path path_;
  SavedState state_;
  // Each of these is true only if the fact is certain.
  bool is_on_disk_ = false;
  bool is_missing_ = false;  // The file does not exist yet.
  Writer write_;
};

// The saved state of a running agent. It logs and counts in the same way for every change.
//
// Not thread-safe.
class AgentState {
 public:
  AgentState(SavedStateFile file, spdlog::logger& log) : file_(std::move(file)), log_(log) {}

  const SavedState& operator*() const { return file_.state(); }
  const SavedState* operator->() const { return &file_.state(); }

  // Saves as SavedStateFile::Save does. If nothing changes, writes nothing. Counts failures, and
  // logs each cause once until a save succeeds.
  Result<void> Save(SavedState next);
  bool IsSaved() const { return file_.IsSaved(); }
  std::uint64_t failures() const { return failures_; }

 private:
  SavedStateFile file_;
  spdlog::logger& log_;
  std::string failure_;  // Why the last save failed. Empty if it succeeded.
  std::uint64_t failures_ = 0;
};

}  // namespace perseus::agent
