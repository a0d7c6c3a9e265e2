#include "perseus/cluster/server/api/plan_on_request.h"

#include <utility>

#include "perseus/cluster/job_planning/planning.h"

namespace perseus::server {
namespace {

// If a job has more instructions, a request does not compute its frontier.
constexpr std::size_t kMaxFrontierOnRequest = 10'000;
// If a job has more instructions, a request makes a plan with a first look (choice_search.h), the
// short search. For a job of this size, the usual search takes about a second.
constexpr std::size_t kMaxUsualEffortOnRequest = 8'000;

}  // namespace

Answer<store::PlanRecord> PlanOnRequest(const Context& context, const plan::Target& target) {
  store::Store& store = context.services.store;
  PERSEUS_ASSIGN_OR_RETURN(auto kept, store.FindPlan(context.job->id, plan::Slug(target)));
  if (kept) return *std::move(kept);
  // A new plan needs seconds of CPU time and is stored, so the right to read is not enough.
  const Resource resource{.job = context.job->key, .owner = context.job->owner};
  PERSEUS_RETURN_IF_ERROR(Allow(context.identity, Access::kJob, resource));
  Places& places = context.services.plans_on_request;
  const Place place(places.try_acquire() ? &places : nullptr);
  if (!place) {
    return Refuse(503, "The server cannot do this now", "it is making plans for other requests",
                  "try again in a few seconds");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto profile, store.FindProfile(context.job->id));
  if (!profile)
    return Refuse(404, "There is no plan yet", "the job has no profile to plan with",
                  "send one with perseus job register");
  PERSEUS_ASSIGN_OR_RETURN(const auto job, job_planning::PrepareJob(*context.job, *profile));
  if (plan::NeedsFrontier(target.kind) &&
      job.planner.graph().instructions.size() > kMaxFrontierOnRequest) {
    return Refuse(422, "The request is not possible",
                  "the job has too many instructions for this target",
                  "use perseus plan, or a slowdown or deadline");
  }
  const bool is_large = job.planner.graph().instructions.size() > kMaxUsualEffortOnRequest;
  PERSEUS_ASSIGN_OR_RETURN(
      auto made, job_planning::MakePlan(job, target,
                                        {.effort = is_large ? plan::kFirstLook : plan::kUsualEffort,
                                         .stop = context.services.ends}));
  made.job = context.job->id;
  made.profile_version = profile->version;
  PERSEUS_ASSIGN_OR_RETURN(auto added, store.AddPlan(std::move(made), context.now));
  return added;
}

}  // namespace perseus::server
