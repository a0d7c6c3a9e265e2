// What must survive the agent: the original settings of each GPU that it changed, the grants, and
// the resting clocks that an administrator declared. saved_state_file.h keeps it on disk.
//
// It is a value: change a copy, save the copy, continue with it.
//
// Thread safety: as any value.
//
// This order survives a crash at any point (write-ahead):
//  1. Take(): a GPU is saved with its lease before the client gets it.
//  2. WillChange(): before the first write of a lease to a control, the control is read, and saved
//  as
//     changed. Only then does the driver set it.
//  3. Restored(): after the driver accepted the old setting and was seen to have it.
//  4. GiveBack(): when nothing of the GPU is changed any more.
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

#include "perseus/runtime/agent/answer.h"
#include "perseus/runtime/agent/owner.h"
#include "perseus/runtime/device/device.h"
#include "perseus/runtime/protocol/messages.h"

namespace perseus::agent {

// What a control was set to before; three cases.
struct SettingBefore {
  bool is_known = false;  // False: the driver could not tell.
  std::optional<device::Setting>
      setting;  // Nothing: the driver's default. Means nothing if not known.
  friend bool operator==(const SettingBefore&, const SettingBefore&) = default;
};
SettingBefore Before(const device::SettingReading& reading);

struct SavedControl {
  SettingBefore before;
  bool is_changed = false;  // By us, or about to be.
  friend bool operator==(const SavedControl&, const SavedControl&) = default;
};

struct SavedGpu {
  std::string uuid;
  std::string lease;
  Owner owner;
  std::map<device::Control, SavedControl> controls;
  friend bool operator==(const SavedGpu&, const SavedGpu&) = default;
};

// A control that is to be put back.
struct Restore {
  std::string uuid;
  device::Control control = device::Control::kSmClock;
  std::optional<device::Setting> setting;  // Nothing: the driver's default.
  friend bool operator==(const Restore&, const Restore&) = default;
};

// What the drivers tell after a start; a GPU or a control that cannot be read is not in it.
using Readings =
    std::map<std::string, std::map<device::Control, device::SettingReading>>;  // By UUID.

struct SavedState {
  std::string boot_id;                   // Of the boot in which it was saved.
  std::map<std::string, SavedGpu> gpus;  // By UUID.
  std::vector<protocol::Grant> grants;
  // What a control is to return to where the driver cannot tell what was there before; by UUID.
  std::map<std::string, std::map<device::Control, device::Setting>> resting;
  friend bool operator==(const SavedState&, const SavedState&) = default;

  // The lease gets the GPU. Controls that it will change for certain may be in it as changed, which
  // spares a Save; what an earlier lease left changed stays as it is saved.
  void Take(SavedGpu gpu);
  // The control was found so just now; a control that is changed already stays as it is saved.
  // False if the GPU was not taken: then it must not be written to.
  bool WillChange(std::string_view uuid, device::Control control, const SettingBefore& found);
  void Restored(std::string_view uuid, device::Control control);
  // False, and nothing happens, if the GPU has changed controls left.
  bool GiveBack(std::string_view uuid);

  // Adds to what the user or cgroup has already. Refuses (kMalformed) one for neither or both.
  Answer<void> Add(const protocol::Grant& grant);
  // Takes all GPUs named from the user or cgroup; refuses (kMalformed), and takes none, if one of
  // them was not granted.
  Answer<void> Remove(const protocol::Grant& grant);

  // Nothing: no longer declared.
  void Rest(const std::string& uuid, device::Control control,
            const std::optional<device::Setting>& setting);

  // After RestoresAfterStart: the boot is this one, and only what is to be restored counts as
  // changed; GPUs without any are given back.
  void BeginBoot(std::string_view boot_id_now, const std::vector<Restore>& restores);
};

// What is to be put back when a lease of the GPU ends: every changed control, to what was there
// before; where the driver could not tell, to what is declared as resting, else to the default.
std::vector<Restore> RestoresAfterLease(const SavedState& state, std::string_view uuid);

// What is to be put back after the agent started, whatever ended its predecessor.
//
// The same boot: as after a lease, for all GPUs. (The driver may have been reloaded or the GPU
// reset since, which drops settings: what was there before comes back all the same. And what
// somebody set between the two agents is lost: our own setting, left behind, looks no different.)
//
// Another boot: the driver's reset has dropped our settings, and what was there before with them.
// Only where there is something to put back, that is a setting found before or declared as resting:
//   reads as the default     put back
//   the driver cannot tell   put back; but if it hints that somebody locked the clock, left alone
//   not to be read at all    put back, when the GPU can be reached again
//   reads as anything else   left alone: somebody set it after the boot
// Controls that we never changed are never touched. `boot_id_now` must not be empty.
std::vector<Restore> RestoresAfterStart(const SavedState& state, std::string_view boot_id_now,
                                        const Readings& readings);

}  // namespace perseus::agent
