// Following plans: activates a plan, measures its steps, and makes a better one from them.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/tuner/outlook.h"
#include "perseus/runtime/tuner/paced_plans.h"
#include "perseus/runtime/tuner/step_costs.h"
#include "perseus/runtime/tuner/tuned_job.h"

namespace perseus::tuner {

class Following {
 public:
  // `job` has to outlive this object.
  explicit Following(TunedJob& job) : job_(job) {}

  // Makes the plans. `reason` says why measuring ended.
  Result<void> MakePlan(const std::string& reason);
  // Runs the baseline and then two plans. Leaves the second plan in force, or the first one if
  // only the second one makes steps too long.
  Result<void> FollowPlans(const std::string& reason);

  // What other slowdowns would save. Empty for a pipeline, because each of its plans may take
  // seconds. `optimism`: see OutlookInput.
  std::vector<OutlookRow> Outlook(double optimism) const;

  const PacedPlans& plans() const { return *plans_; }  // After MakePlan.
  // The steps with the plan that was followed last.
  const std::optional<SeenSteps>& seen() const { return seen_; }
  // The assignment with the plan. 0: none.
  std::int64_t version() const { return version_; }
  std::int64_t plan_from_step() const { return plan_from_step_; }

 private:
  struct Followed {
    MeasuredGpus gpus;  // Only the measurements while the plan was followed.
    UsualCost cost;
  };

  Result<protocol::Assignment> AssignPlans() const;
  Result<UsualCost> RunBaseline();
  Result<Followed> Follow();
  void Explain(const SeenSteps& seen);
  bool IsTooSlow() const;
  void WarnAboveTarget() const;
  void WarnIfStepsOverlap() const;
  void WarnIfUnexplained() const;
  Result<void> LeaveInForce();

  TunedJob& job_;
  std::optional<PacedPlans> plans_;
  bool has_named_faster_ = false;
  std::optional<SeenSteps> seen_;
  std::int64_t version_ = 0;
  std::int64_t plan_from_step_ = -1;
};

}  // namespace perseus::tuner
