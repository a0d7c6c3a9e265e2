// Holds the SM clocks of GPUs for a measurement without an agent, as safely as an agent does. The
// guard saves the settings before the first change, and restores them when the guard ends. If the
// process is killed meanwhile, the next agent or `perseus gpu restore` restores them.
//
// While the guard lives, no agent can start on the same state, and the calling thread holds back
// SIGINT, SIGTERM, SIGHUP and SIGQUIT (threads that it starts inherit this). A long measurement
// polls for these signals (cli/terminal/signals.h).
//
// Not thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/device/device.h"

namespace perseus::agent {

class SettingsGuard {
 public:
  struct Where {
    std::filesystem::path state;  // The state file of the agent.
    std::string boot_id;
    std::string holder;  // What the state names as the holder: "perseus doctor".
    int attempts = 50;   // To restore a GPU, every 100 ms.
  };

  // Fails (kSystem) if an agent runs on this state, if GPUs have to be restored first, if a clock
  // is locked and the driver does not report to what, or if a driver fails. Then nothing is
  // changed. The devices have to outlive the guard.
  static Result<SettingsGuard> Take(std::vector<device::Device*> devices, const Where& where);
  SettingsGuard(SettingsGuard&&) noexcept;
  SettingsGuard& operator=(SettingsGuard&&) = delete;
  ~SettingsGuard();  // Restores what Restore() has not restored.

  // Tries every GPU. Fails (kSystem) with the GPUs that were not restored. They stay in the state.
  Result<void> Restore();
  // Ends without a restore, because the caller changed nothing. (A driver that refuses every change
  // would refuse the restore, too.) Fails (kSystem) if the state cannot be saved.
  Result<void> Forget();

 private:
  class Held;
  explicit SettingsGuard(std::unique_ptr<Held> held);
  std::unique_ptr<Held> held_;
};

}  // namespace perseus::agent
