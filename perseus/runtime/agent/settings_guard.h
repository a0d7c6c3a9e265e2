// Holds the SM clocks of GPUs for a measurement without an agent, as safely as an agent does. The
// guard saves the settings before the first change. When the guard ends, it restores them. If the
// process is killed meanwhile, the next agent or `perseus gpu restore` restores them.
//
// While the guard lives, no agent can start on the same state. The calling thread holds back
// SIGINT, SIGTERM, SIGHUP and SIGQUIT, and threads that it starts do the same. So a long
// measurement polls for these signals (cli/terminal/signals.h).
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
    // How often to try to restore a GPU. 100 ms are between two attempts.
    int attempts = 50;
  };

  // Fails (kSystem) in these cases: an agent runs on this state; GPUs have to be restored first; a
  // clock is locked and the driver does not report the locked value; a driver fails. After a
  // failure, nothing is changed. The devices have to outlive the guard.
  static Result<SettingsGuard> Take(std::vector<device::Device*> devices, const Where& where);
  SettingsGuard(SettingsGuard&&) noexcept;
  SettingsGuard& operator=(SettingsGuard&&) = delete;
  ~SettingsGuard();  // Restores what Restore() has not restored.

  // Tries to restore every GPU. Fails (kSystem) with the GPUs that were not restored. These GPUs
  // stay in the state.
  Result<void> Restore();
  // Ends the guard without a restore. Use it if the caller changed nothing, because a driver that
  // refused every change would also refuse the restore. Fails (kSystem) if the state cannot be
  // saved.
  Result<void> Forget();

 private:
  class Held;
  explicit SettingsGuard(std::unique_ptr<Held> held);
  std::unique_ptr<Held> held_;
};

}  // namespace perseus::agent
