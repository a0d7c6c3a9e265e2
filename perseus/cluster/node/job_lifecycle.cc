#include "perseus/cluster/node/job_lifecycle.h"

namespace perseus::node {

JobState NextState(JobState state, JobEvent event) {
  switch (event) {
    case JobEvent::kAccepted:
      return JobState::kAttached;
    case JobEvent::kRestarted:
      return JobState::kDetached;
    case JobEvent::kEnded:
      return JobState::kEnded;
    case JobEvent::kNotAttached:
      return state == JobState::kAttached ? JobState::kUnknown : state;
    case JobEvent::kAssigned:
      return state == JobState::kEnded ? JobState::kDetached : state;
    case JobEvent::kRanksChanged:
      return state == JobState::kEnded ? state : JobState::kDetached;
    case JobEvent::kClaimLost:
      return state == JobState::kAttached ? JobState::kDetached : state;
  }
  return state;
}

void JobLifecycle::Apply(JobEvent event) {
  const JobState before = state_;
  state_ = NextState(before, event);
  if (event == JobEvent::kRestarted) has_restarted_ = true;
  if (event == JobEvent::kAccepted) has_restarted_ = false;
  // In these states, steps that ran before the state began are no reason for a request.
  const bool waits = state_ == JobState::kUnknown || state_ == JobState::kEnded;
  if (waits && state_ != before) has_run_ = false;
}

bool JobLifecycle::NeedsRequest() const {
  switch (state_) {
    case JobState::kAttached:
      return false;
    case JobState::kDetached:
      return true;
    case JobState::kUnknown:
    case JobState::kEnded:
      return has_run_;
  }
  return false;
}

}  // namespace perseus::node
