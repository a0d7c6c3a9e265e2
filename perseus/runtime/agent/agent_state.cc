#include "perseus/runtime/agent/agent_state.h"

#include <utility>

namespace perseus::agent {

using protocol::Refusal;

Result<void> AgentState::Save(SavedState next) {
  if (next == file_.state() && IsSaved()) return {};
  auto saved = file_.Save(std::move(next));
  const std::string failure = saved ? "" : saved.error().message;
  // Saves are repeated several times a second.
  const bool is_new = std::exchange(failure_, failure) != failure;
  if (saved) return saved;
  ++failures_;
  if (is_new) log_.error("{}", failure);
  return saved;
}

Answer<void> AgentState::Grant(const protocol::Grant& wanted) {
  SavedState next = file_.state();
  if (auto added = next.Add(wanted); !added) return added;
  if (auto saved = Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the grant could not be saved: {}", saved.error().message);
  }
  return {};
}

Answer<void> AgentState::Revoke(const protocol::Grant& wanted) {
  SavedState next = file_.state();
  if (auto removed = next.Remove(wanted); !removed) return removed;
  if (auto saved = Save(std::move(next)); !saved) {
    return Refuse(Refusal::kUnavailable, "the revocation could not be saved: {}",
                  saved.error().message);
  }
  return {};
}

std::optional<device::Setting> AgentState::RestingOf(const std::string& uuid,
                                                     device::Control control) const {
  const auto gpu = file_.state().resting.find(uuid);
  if (gpu == file_.state().resting.end()) return std::nullopt;
  const auto setting = gpu->second.find(control);
  if (setting == gpu->second.end()) return std::nullopt;
  return setting->second;
}

}  // namespace perseus::agent
