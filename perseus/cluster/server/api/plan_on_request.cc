#include "perseus/cluster/server/api/plan_on_request.h"

#include <atomic>
#include <utility>

#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/job_planning/other_schedules.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/cluster/job_planning/searched_schedule.h"

namespace perseus::server {
namespace {

// A request does not compute the frontier of a job with more instructions.
constexpr std::size_t kMaxFrontierOnRequest = 10'000;
// A request does not search for schedules of a job with more instructions.
constexpr std::size_t kMaxSearchedOnRequest = 2'000;
// A request for a job with more instructions gets a first look. The usual effort takes about a
// second for a job of this size.
constexpr std::size_t kMaxUsualEffortOnRequest = 8'000;
// How many requests may plan at the same time, because other requests need threads, too.
constexpr int kMaxPlansAtOnce = 2;

// Holds one of the kMaxPlansAtOnce places.
class PlanningPlace {
 public:
  static std::optional<PlanningPlace> Take(std::atomic<int>& taken) {
    if (taken.fetch_add(1) < kMaxPlansAtOnce) return PlanningPlace(taken);
    taken.fetch_sub(1);
    return std::nullopt;
  }
  PlanningPlace(PlanningPlace&& other) noexcept : taken_(std::exchange(other.taken_, nullptr)) {}
  PlanningPlace& operator=(PlanningPlace&&) = delete;
  ~PlanningPlace() {
    if (taken_ != nullptr) taken_->fetch_sub(1);
  }

 private:
  explicit PlanningPlace(std::atomic<int>& taken) : taken_(&taken) {}
  std::atomic<int>* taken_;
};

Answer<void> CheckSearchable(std::size_t instructions) {
  if (instructions <= kMaxSearchedOnRequest) return {};
  return Refuse(422, "The request is not possible",
                "the job has too many instructions to search for schedules on a server",
                "use perseus schedule search");
}

tl::unexpected<http::Problem> TooManyPlans() {
  return Refuse(503, "The server cannot do this now", "it is making plans for other requests",
                "try again in a few seconds");
}

}  // namespace

Answer<store::PlanRecord> PlanOnRequest(const Context& context, const plan::Target& target) {
  store::Store& store = context.services.store;
  auto kept = store.FindPlan(context.job->id, plan::Slug(target));
  if (!kept) return Refuse(kept);
  if (*kept) return **std::move(kept);
  // A new plan takes seconds of a processor and is stored, so a right to read does not suffice.
  const Resource resource{.job = context.job->key, .owner = context.job->owner};
  if (auto may = Allow(context.identity, Access::kJob, resource); !may) {
    return tl::unexpected(may.error());
  }
  const auto place = PlanningPlace::Take(context.services.plans_on_request);
  if (!place) return TooManyPlans();
  const auto profile = store.FindProfile(context.job->id);
  if (!profile) return Refuse(profile);
  if (!*profile)
    return Refuse(404, "There is no plan yet", "the job has no profile to plan with",
                  "send one: perseus job register --profile FILE");
  const auto job = job_planning::PrepareJob(*context.job, **profile);
  if (!job) return Refuse(job);
  if (plan::NeedsFrontier(target.kind) &&
      job->planner.graph().instructions.size() > kMaxFrontierOnRequest) {
    return Refuse(422, "The request is not possible",
                  "the job has too many instructions for this target",
                  "use perseus plan, or a slowdown or deadline");
  }
  const bool is_large = job->planner.graph().instructions.size() > kMaxUsualEffortOnRequest;
  auto made = job_planning::MakePlan(
      *job, target,
      {.effort = is_large ? plan::kFirstLook : plan::kUsualEffort, .stop = context.services.ends});
  if (!made) return Refuse(made);
  auto added = store.AddPlan({.id = "",
                              .job = context.job->id,
                              .slug = std::move(made->slug),
                              .profile_version = (*profile)->version,
                              .body = std::move(made->body)},
                             context.now);
  if (!added) return Refuse(added);
  return *std::move(added);
}

Answer<std::string> SchedulesOnRequest(const Context& context) {
  const auto place = PlanningPlace::Take(context.services.plans_on_request);
  if (!place) return TooManyPlans();
  const auto profile = context.services.store.FindProfile(context.job->id);
  if (!profile) return Refuse(profile);
  if (!*profile) {
    return Refuse(404, "There is no profile yet", "the job has no profile to search with",
                  "send one: perseus job register --profile FILE");
  }
  const auto spec = job_planning::StoredJobSpec(context.job->body);
  if (!spec) return Refuse(spec);
  std::size_t instructions = 0;
  for (const auto& order : spec->planned.schedule.pp_ranks) instructions += order.size();
  if (auto may = CheckSearchable(instructions); !may) return tl::unexpected(may.error());
  auto compared = job_planning::CompareSchedules(*context.job, **profile, context.services.ends);
  if (!compared) return Refuse(compared);
  return *std::move(compared);
}

Answer<std::string> WithSchedule(const Context& context, const std::string& registration) {
  nlohmann::json body = nlohmann::json::parse(registration);
  if (!job_planning::AsksForSchedule(body)) return registration;
  const auto place = PlanningPlace::Take(context.services.plans_on_request);
  if (!place) return TooManyPlans();
  const auto question =
      ReadBody(registration, job_planning::kDeepestJobSpec, job_planning::ReadScheduleQuestion);
  if (!question) return tl::unexpected(question.error());
  if (auto may = CheckSearchable(question->instructions()); !may) {
    return tl::unexpected(may.error());
  }
  const auto found = job_planning::FindSchedule(*question, context.services.ends);
  if (!found) return Refuse(found, "/schedule");
  body["schedule"] = {{"csv", schedule::FormatSchedule(*found)}};
  return body.dump();
}

}  // namespace perseus::server
