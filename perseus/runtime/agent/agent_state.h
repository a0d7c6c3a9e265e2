// The saved state of a running agent. It writes, logs and counts in the same way for every change.
//
// Not thread-safe.
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "perseus/base/result.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/agent/saved_state.h"
#include "perseus/runtime/agent/saved_state_file.h"
#include "perseus/runtime/protocol/messages/messages.h"

namespace perseus::agent {

class AgentState {
 public:
  AgentState(SavedStateFile file, spdlog::logger& log) : file_(std::move(file)), log_(log) {}

  const SavedState& operator*() const { return file_.state(); }
  const SavedState* operator->() const { return &file_.state(); }

  // As SavedStateFile::Save. Writes nothing if nothing changes. Counts failures, and logs each
  // cause once until a save succeeds.
  Result<void> Save(SavedState next);
  bool IsSaved() const { return file_.IsSaved(); }
  std::uint64_t failures() const { return failures_; }

  // What an administrator wants. The caller has checked that it is one.
  Answer<void> Grant(const protocol::Grant& wanted);
  Answer<void> Revoke(const protocol::Grant& wanted);

  // What the control returns to, as declared.
  std::optional<device::Setting> RestingOf(const std::string& uuid, device::Control control) const;

 private:
  SavedStateFile file_;
  spdlog::logger& log_;
  std::string failure_;  // Of the last save. Empty if it succeeded.
  std::uint64_t failures_ = 0;
};

}  // namespace perseus::agent
