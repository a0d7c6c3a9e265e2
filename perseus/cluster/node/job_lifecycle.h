// Tracks what the node knows about the server: whether the server has the ranks of a job directory.
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
// An event that is not drawn does not change the state.
//
// A detached job requests attachment as soon as it can. An unknown or ended job does so only after
// a step, because its ranks may have continued elsewhere or may never run again. If these ranks run
// a step, the server may have registered the job again. Each request needs a new step.
//
// Two facts are not states, because they are independent of the state. One is whether a step ran
// since the last request. The other is whether ranks restarted since the server last accepted them.
//
// Not thread safe.
#pragma once

namespace perseus::node {

enum class JobState {
  kDetached,  // The server does not have these ranks.
  kAttached,  // The server has these ranks.
  kUnknown,   // The server no longer has these ranks: they are on another node, or the job ended.
  kEnded,     // The server has reported the end of the job.
};

enum class JobEvent {
  kAccepted,      // The server accepts the ranks.
  kNotAttached,   // The server reports that it does not have the ranks.
  kEnded,         // The server reports the end of the job.
  kAssigned,      // The server sends an assignment of the job.
  kRanksChanged,  // The directory has other ranks, or a rank has another GPU.
  kRestarted,     // A rank has a new process, whose steps count from 0.
  kClaimLost,     // Another process has the node's name, or another directory has the job's key.
};

// Returns the state after an event.
JobState NextState(JobState state, JobEvent event);

class JobLifecycle {
 public:
  JobState state() const { return state_; }
  bool is_attached() const { return state_ == JobState::kAttached; }
  bool has_ended() const { return state_ == JobState::kEnded; }

  void Apply(JobEvent event);
  // Records that the ranks ended a step.
  void StepRan() { has_run_ = true; }

  // Whether to request the attachment of the ranks.
  bool NeedsRequest() const;
  // Records that the request was sent. The request says whether ranks have restarted.
  void RequestSent() { has_run_ = false; }
  // Whether ranks have restarted since the server accepted them. A failed request does not change
  // the result.
  bool has_restarted() const { return has_restarted_; }

 private:
  JobState state_ = JobState::kDetached;
  bool has_run_ = false;
  bool has_restarted_ = false;
};

}  // namespace perseus::node
