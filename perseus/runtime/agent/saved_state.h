// What must survive the agent: the original settings of each GPU that it changed, the grants, and
// the resting clocks that an administrator declared. saved_state_file.h keeps it on disk.
//
// It is a value: change a copy, save the copy, continue with it.
//
// Thread safety: a value without shared state.
//
// This order survives a crash at any point (write-ahead):
//  1. Take(): a GPU is saved with its lease before the client gets it.
//  2. WillChange(): before the first write of a lease to a control, the control is read and saved
//     as changed. Only then does the driver set it.
//  3. Restored(): after the driver accepted the old setting, and a reading confirmed it.
//  4. GiveBack(): when no control of the GPU is changed any more.
// After a crash between two of these, at most one control is saved as changed although it is not.
// It is restored like any other: to its current setting, or, if the driver cannot report it, to the
// setting that the end of the lease would have restored.
//
// Invariants:
//  1. A GPU has at most one entry.
//  2. While a control is changed, its saved original setting is not overwritten: a reading would
//     return the agent's own setting.
//  3. Grants: one for each user and each cgroup, with ascending GPUs, each once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/owner.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

// The setting of a control before a lease. It may be unknown, the driver's default, or a setting.
struct SettingBefore {
  bool is_known = false;  // False: the driver could not report it.
  // Empty: the driver's default. No meaning if it is unknown.
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

// What the drivers report after a start. GPUs and controls that cannot be read are not in it.
using Readings =
    std::map<std::string, std::map<device::Control, device::SettingReading>>;  // By UUID.

struct SavedState {
  std::string boot_id;                   // The boot in which it was saved.
  std::map<std::string, SavedGpu> gpus;  // By UUID.
  std::vector<protocol::Grant> grants;
  // By UUID: what a control returns to if the driver could not report the setting before.
  std::map<std::string, std::map<device::Control, device::Setting>> resting;
  friend bool operator==(const SavedState&, const SavedState&) = default;

  // Gives the GPU to a lease. Controls that the lease will certainly change may already be marked
  // as changed, which saves a Save. What an earlier lease left changed stays as it was saved.
  void Take(SavedGpu gpu);
  // `found` is the current setting of the control. A control that is already changed stays as it
  // was saved. Returns false if the GPU was not taken. Then it must not be written to.
  bool WillChange(std::string_view uuid, device::Control control, const SettingBefore& found);
  void Restored(std::string_view uuid, device::Control control);
  // Returns false, and does nothing, if the GPU still has changed controls.
  bool GiveBack(std::string_view uuid);

  // Adds GPUs to the grant of the user or cgroup. Refuses (kMalformed) a grant for neither or both.
  Answer<void> Add(const protocol::Grant& grant);
  // Removes these GPUs from the grant of the user or cgroup. Refuses (kMalformed), and removes
  // none, if one of them was not granted.
  Answer<void> Remove(const protocol::Grant& grant);

  // Declares what a control returns to. An empty setting removes the declaration.
  void DeclareResting(const std::string& uuid, device::Control control,
                      const std::optional<device::Setting>& setting);

  // Call it after RestoresAfterStart. From now on, the state belongs to this boot. Only controls in
  // `restores` count as changed, and GPUs without such controls are removed.
  void BeginBoot(std::string_view boot_id_now, const std::vector<Restore>& restores);
};

// What to restore when a lease of the GPU ends: every changed control, to its setting before the
// lease. If the driver could not report that, to the declared resting setting, or else to the
// default.
std::vector<Restore> RestoresAfterLease(const SavedState& state, std::string_view uuid);

// What to restore after the agent has started, for any end of its predecessor.
//
// In the same boot: the same as after a lease, for all GPUs. (If the driver was reloaded or the GPU
// was reset since, the settings were lost. They are restored all the same. What another program set
// between the two agents is lost, because it looks like a setting that the first agent left.)
//
// After another boot: the driver's reset has dropped the agent's settings, and those before. So
// only a setting that was found before, or is declared as resting, is restored, depending on the
// reading:
//   the default                 restored
//   not reported by the driver  restored, unless the driver hints at a lock
//   not readable at all         restored when the GPU can be reached again
//   any other setting           left alone, because another program set it after the boot
// NotRestoredAfterStart has what must not be forgotten without a warning.
// Controls that the agent never changed are never touched. `boot_id_now` must not be empty.
std::vector<Restore> RestoresAfterStart(const SavedState& state, std::string_view boot_id_now,
                                        const Readings& readings);

// A changed control that is not restored, and what the driver reports of it.
struct NotRestored {
  Restore wanted;
  std::optional<device::SettingReading> reading;  // Empty if it cannot be read.
};

// The changed controls that are not in `restores`, the result of RestoresAfterStart. BeginBoot
// forgets them, so the caller warns of each: if the saved boot id is wrong, such as in a damaged
// file without a checksum, the agent's own lock looks like that of another program. Leaves out
// controls that read as they were before the lease, as after a reboot if the driver reports locks.
// If it does not, only a node that stopped without ending its agent in order gets these warnings.
std::vector<NotRestored> NotRestoredAfterStart(const SavedState& state,
                                               const std::vector<Restore>& restores,
                                               const Readings& readings);

}  // namespace perseus::agent
