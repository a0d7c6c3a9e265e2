#include "perseus/cluster/node/job_lifecycle.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace perseus::node {
namespace {

JobLifecycle JobAfter(const std::vector<JobEvent>& events) {
  JobLifecycle job;
  for (const JobEvent event : events) job.Apply(event);
  return job;
}
JobLifecycle UnknownJob() { return JobAfter({JobEvent::kAccepted, JobEvent::kNotAttached}); }
JobLifecycle EndedJob() { return JobAfter({JobEvent::kAccepted, JobEvent::kEnded}); }

TEST(JobState, EveryEventInEveryState) {
  constexpr JobState kDetached = JobState::kDetached;
  constexpr JobState kAttached = JobState::kAttached;
  constexpr JobState kUnknown = JobState::kUnknown;
  constexpr JobState kEnded = JobState::kEnded;
  const std::vector<JobState> before = {kDetached, kAttached, kUnknown, kEnded};
  const std::map<JobEvent, std::vector<JobState>> after = {
      {JobEvent::kAccepted, {kAttached, kAttached, kAttached, kAttached}},
      {JobEvent::kNotAttached, {kDetached, kUnknown, kUnknown, kEnded}},
      {JobEvent::kEnded, {kEnded, kEnded, kEnded, kEnded}},
      {JobEvent::kAssigned, {kDetached, kAttached, kUnknown, kDetached}},
      {JobEvent::kRanksChanged, {kDetached, kDetached, kDetached, kEnded}},
      {JobEvent::kRestarted, {kDetached, kDetached, kDetached, kDetached}},
      {JobEvent::kClaimLost, {kDetached, kDetached, kUnknown, kEnded}},
  };
  for (const auto& [event, states] : after) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(NextState(before[i], event), states[i])
          << "event " << static_cast<int>(event) << " in state " << i;
    }
  }
}

TEST(JobLifecycle, ANewJobRequestsItsAttachmentUntilTheServerAccepts) {
  JobLifecycle job;
  EXPECT_EQ(job.state(), JobState::kDetached);
  EXPECT_TRUE(job.NeedsRequest());
  job.RequestSent();
  EXPECT_TRUE(job.NeedsRequest()) << "the request failed";
  job.Apply(JobEvent::kAccepted);
  EXPECT_TRUE(job.is_attached());
  EXPECT_FALSE(job.NeedsRequest());
}

TEST(JobLifecycle, UnknownAndEndedJobsRequestOnceForEachNewStep) {
  for (JobLifecycle job : {UnknownJob(), EndedJob()}) {
    EXPECT_FALSE(job.NeedsRequest());
    job.StepRan();
    EXPECT_TRUE(job.NeedsRequest());
    job.RequestSent();
    EXPECT_FALSE(job.NeedsRequest());
    job.StepRan();
    EXPECT_TRUE(job.NeedsRequest());
  }
}

TEST(JobLifecycle, StepsBeforeTheJobEndedDoNotCount) {
  for (const JobEvent last : {JobEvent::kNotAttached, JobEvent::kEnded}) {
    JobLifecycle job = JobAfter({JobEvent::kAccepted});
    job.StepRan();
    job.Apply(last);
    EXPECT_FALSE(job.NeedsRequest());
  }
  JobLifecycle job = UnknownJob();
  job.StepRan();
  job.Apply(JobEvent::kEnded);
  EXPECT_FALSE(job.NeedsRequest());
}

TEST(JobLifecycle, TheSameAnswerAgainDoesNotDiscardAStep) {
  JobLifecycle job = EndedJob();
  job.StepRan();
  job.Apply(JobEvent::kEnded);
  EXPECT_TRUE(job.NeedsRequest());
}

TEST(JobLifecycle, ARestartIsKnownUntilTheServerAcceptsTheRanks) {
  JobLifecycle job = EndedJob();
  EXPECT_FALSE(job.has_restarted());
  job.Apply(JobEvent::kRestarted);
  EXPECT_TRUE(job.NeedsRequest());
  job.RequestSent();
  job.Apply(JobEvent::kEnded);
  EXPECT_TRUE(job.has_restarted());
  job.Apply(JobEvent::kAccepted);
  EXPECT_FALSE(job.has_restarted());
}

}  // namespace
}  // namespace perseus::node
