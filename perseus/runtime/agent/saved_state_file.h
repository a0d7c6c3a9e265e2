// The saved state on disk: one JSON file, replaced as a whole and flushed. So a crash at any time
// leaves either the old state or the new one.
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
// Clocks are in MHz, power limits in mW. A process that can write this file decides what the agent
// does to GPUs, so the file belongs in a directory of root.
//
// The checksum is the CRC-32 (of zlib) of everything else: the file's JSON without "checksum", with
// sorted keys and no spaces. It is a key of the JSON, and not a line behind it, so that any editor
// and any JSON tool can show and reformat the file. It finds each changed character, such as one of
// the boot id, that the reader would believe. It is no protection against intent, see above. The
// error has the right checksum, for a person who has changed the file by hand and knows that it is
// right.
//
// A file with a wrong checksum is an error like all other damage: no agent starts until a person
// has decided. To restore what still seems right could set another GPU, or to a wrong power limit,
// and an agent that continues without the file would take its predecessor's lock for the setting of
// an administrator. Meanwhile training runs without Perseus, and the alert for a missing agent
// fires.
//
// Version 1 had no checksum. It is read, and replaced at the first Save, which every agent does at
// its start. Agents of that version refuse version 2; docs/how-to/upgrade.md has the way back.
//
// Not thread-safe: one thread owns it.
//
// Invariants:
//  1. state() is what was saved last. It never has changes that could not be saved.
//  2. Nothing is written that could not be read again.
//  3. A file that cannot be read completely, or has a wrong checksum, is not used at all, and is
//     left unchanged.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/runtime/agent/saved_state.h"

namespace perseus::agent {

// Fails (kInput) for an invalid file. The message has the place, what the agent does, and the
// remedy. `name` is the file's name in messages.
Result<SavedState> ParseSavedState(std::string_view text, std::string_view name);
std::string FormatSavedState(const SavedState& state);

// Makes this process the state's only owner for as long as the descriptor is open (and no longer:
// the kernel drops the lock with the process). A process that saves the state has to hold it. Fails
// (kSystem) if another process has it.
Result<FileDescriptor> LockSavedState(const std::filesystem::path& state);
// The file that LockSavedState locks.
std::filesystem::path LockPathOf(std::filesystem::path state);

class SavedStateFile {
 public:
  // Replaces the content of the file in one step that survives a power failure.
  using Writer =
      std::function<Result<void>(const std::filesystem::path& path, std::string_view contents)>;

  // Reads the state at `path`. If the file does not exist, the state is empty, and belongs to the
  // boot `boot_id_now`. (It is written by the first Save.) An existing state keeps its own boot
  // (see RestoresAfterStart). Fails as ReadFile and ParseSavedState do. Then the agent must change
  // no GPU, because it does not know the settings before. `write` is for tests. Empty:
  // WriteFileAtomically.
  static Result<SavedStateFile> Open(std::filesystem::path path, std::string_view boot_id_now,
                                     Writer write = {});

  const SavedState& state() const { return state_; }

  // When it returns successfully, `next` is on disk. If it fails, state() is the old one, and the
  // caller must not do what had to be saved first.
  Result<void> Save(SavedState next);

  // Whether the disk certainly has state(), as it usually does after a Save that failed: a full
  // disk leaves the old file. (No file is the empty state.) Otherwise either of the two may be on
  // disk until a Save succeeds. Both are right for a GPU that nobody touches meanwhile. So repeat
  // Save(state()) then, before a GPU that could not be saved as taken counts as free again
  // (LeaseTable::Cancel).
  bool IsSaved() const { return is_on_disk_ || is_missing_; }

 private:
  SavedStateFile(std::filesystem::path path, SavedState state, Writer write);

  std::filesystem::path path_;
  SavedState state_;
  // Each is true only if it is certain.
  bool is_on_disk_ = false;
  bool is_missing_ = false;  // There is no file yet.
  Writer write_;
};

}  // namespace perseus::agent
