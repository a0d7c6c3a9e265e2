// The saved state on disk: one JSON file, replaced as a whole and flushed. So a crash at any time
// leaves either the old state or the new one.
//
//   {"format": "perseus-agent-state", "version": 1, "boot_id": "9b2d…",
//    "gpus": [{"uuid": "GPU-1f…", "lease": "9b2d61c4-5265c00-12",
//              "owner": {"pid": 4242, "process_started": 3521262, "uid": 1000, "job": "llama-7b"},
//              "controls": {"sm_clock": {"before": "unknown", "changed": true},
//                           "memory_clock": {"before": "default", "changed": false},
//                           "power_limit": {"before": {"lower": 300000, "upper": 300000},
//                                           "changed": false}}}],
//    "grants": [{"gpus": ["GPU-1f…"], "cgroup": "/slurm/job_17"}],
//    "resting": [{"uuid": "GPU-1f…", "sm_clock": {"lower": 210, "upper": 1410}}]}
// Clocks are in MHz, power limits in mW. A process that can write this file decides what the agent
// does to GPUs, so the file belongs in a directory of root.
//
// Thread safety: none; one owner.
//
// What always holds:
//  1. state() is what was last saved, never what could not be.
//  2. Nothing is written that could not be read again.
//  3. A file that cannot be read as a whole is not used in parts, and is left as it is.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/agent/saved_state.h"

namespace perseus::agent {

// Fails (kInput) for whatever is no such file, with the place, what the agent does about it, and
// the remedy. `name` is how messages call it.
Result<SavedState> ParseSavedState(std::string_view text, std::string_view name);
std::string FormatSavedState(const SavedState& state);

// Makes this process the state's only owner for as long as the descriptor is open (and no longer:
// the kernel drops the lock with the process). Whoever saves holds it. Fails (kSystem) if another
// process has it.
Result<FileDescriptor> LockSavedState(const std::filesystem::path& state);
// The file that LockSavedState locks.
std::filesystem::path LockPathOf(std::filesystem::path state);

class SavedStateFile {
 public:
  // Makes `contents` the file's in one step that survives a power cut.
  using Writer =
      std::function<Result<void>(const std::filesystem::path& path, std::string_view contents)>;

  // What was saved at `path`; where there is no file, an empty state of boot `boot_id_now` (which
  // is not written before the first Save). An existing state keeps its own boot: see
  // RestoresAfterStart. Fails as ReadFile and ParseSavedState do; the agent must then change no GPU
  // at all, since it cannot know what was there before. `write`: for tests; WriteFileAtomically.
  static Result<SavedStateFile> Open(std::filesystem::path path, std::string_view boot_id_now,
                                     Writer write = {});

  const SavedState& state() const { return state_; }

  // On disk when it returns. If it fails, do not do what was to be saved first: state() is the old
  // one. Which of the two is on disk is not known until a Save succeeds; either is right for a GPU
  // that nobody else touches meanwhile. So repeat Save(state()) before a GPU that could not be
  // saved as taken counts as free again (LeaseTable::Cancel).
  Result<void> Save(SavedState next);

 private:
  SavedStateFile(std::filesystem::path path, SavedState state, Writer write);

  std::filesystem::path path_;
  SavedState state_;
  bool is_on_disk_ = false;  // For certain.
  Writer write_;
};

}  // namespace perseus::agent
