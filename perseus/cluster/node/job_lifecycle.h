// Whether the server has the ranks of a job directory, as far as the node knows.
//
//                                  accepted
//                detached ─────────────────────────────▶ attached
//                         ◀─────────────────────────────
//                          ranks changed, claim lost
//
//   ranks changed          not attached
//   detached ◀── unknown ◀────────────── attached
//
//   assigned               ended
//   detached ◀──── ended ◀────────────── detached, attached, unknown
//
//   Any state: accepted ──▶ attached, restarted ──▶ detached.
//
// An event that is not drawn leaves the state as it is.
//
// A detached job requests its attachment as soon as it can. An unknown or ended job does so only
// after a step: its ranks may have continued elsewhere, or they may never run again. If they do
// run, the server may have registered the job again. Each request needs a new step.
//
// Two facts are not states, because they are true or false in several states: whether a step ran
// since the last request, and whether ranks restarted since the server last accepted them.
//
// Not thread safe.
#pragma once

namespace perseus::node {

enum class JobState {
  kDetached,  // The server does not have these ranks.
  kAttached,  // It has them.
  kUnknown,   // It said that it no longer has them: they are on another node, or the job ended.
  kEnded,     // It said that the job has ended.
};

enum class JobEvent {
  kAccepted,      // The server accepts the ranks.
  kNotAttached,   // The server says that it does not have the ranks.
  kEnded,         // The server says that the job has ended.
  kAssigned,      // The server sends an assignment of the job.
  kRanksChanged,  // The directory has other ranks, or a rank has another GPU.
  kRestarted,     // A rank has a new process, whose steps count from 0.
  kClaimLost,     // Another process has the node's name, or another directory has the job's key.
};

// The state after an event.
JobState NextState(JobState state, JobEvent event);

class JobLifecycle {
 public:
  JobState state() const { return state_; }
  bool is_attached() const { return state_ == JobState::kAttached; }
  bool has_ended() const { return state_ == JobState::kEnded; }

  void Apply(JobEvent event);
  // The ranks ended a step.
  void StepRan() { has_run_ = true; }

  // Whether to request the attachment of the ranks.
  bool NeedsRequest() const;
  // The request is sent. It says whether ranks have restarted.
  void RequestSent() { has_run_ = false; }
  // Whether ranks have restarted since the server accepted them. Requests that fail keep it.
  bool has_restarted() const { return has_restarted_; }

 private:
  JobState state_ = JobState::kDetached;
  bool has_run_ = false;
  bool has_restarted_ = false;
};

}  // namespace perseus::node
