// The endpoints of jobs: register, list, show, set the target, end.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/api/differences.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_view.h"
#include "perseus/cluster/server/api/plan_on_request.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

constexpr int kDefaultJobs = 100;
constexpr int kMaxJobs = 1000;
// A schedule file takes about 30 bytes for each instruction.
constexpr std::size_t kMaxRegistrationBytes = 8 << 20;

// Returns a text that does not depend on the order of keys and on white space.
std::string Canonical(std::string_view body) { return JsonText(nlohmann::json::parse(body)); }

// Returns the owner of a new job: the named owner, or the caller's only owner if none is named.
Answer<std::string> OwnerOf(const std::string& named, const std::vector<std::string>& own) {
  if (own.empty()) return named;
  if (named.empty() && own.size() == 1) return own.front();
  if (named.empty()) {
    return Refuse(422, "The owner is missing",
                  fmt::format("the token is valid for the jobs of {}", fmt::join(own, ", ")),
                  "name one of these owners (perseus job register)", "/owner");
  }
  if (std::ranges::find(own, named) != own.end()) return named;
  return Refuse(403, "The token has no right to this",
                fmt::format("the token is valid for jobs of {} only",
                            Excerpt(fmt::format("{}", fmt::join(own, ", ")))),
                "leave out the owner, or use a token of that owner", "/owner");
}

Answer<http::Response> Register(const Context& context) {
  // Check the rights first, because a registration generates the schedule, which takes time and
  // memory.
  PERSEUS_ASSIGN_OR_RETURN(const auto key,
                           ReadBody(context.request.body, job_planning::kDeepestJobSpec,
                                    job_planning::ReadRegisteredKey));
  // A caller that belongs to an owner registers jobs of this owner. Other callers may name any
  // owner.
  const std::vector<std::string>& own = context.identity.owners;
  const std::string_view first = own.empty() ? std::string_view() : own.front();
  const Resource mine{.job = key, .owner = first};
  PERSEUS_RETURN_IF_ERROR(Allow(context.identity, Access::kJob, mine));
  const std::string& body = context.request.body;
  PERSEUS_ASSIGN_OR_RETURN(
      auto spec, ReadBody(body, job_planning::kDeepestJobSpec, job_planning::ReadJobSpec));
  PERSEUS_ASSIGN_OR_RETURN(const std::string owner, OwnerOf(spec.owner, own));
  const std::string canonical = Canonical(body);
  // The key of a job stays with its owner, also when the job has ended: its ranks may still run,
  // and would join a new job with this key.
  PERSEUS_ASSIGN_OR_RETURN(const auto latest, context.services.store.FindJob(key));
  if (latest) {
    PERSEUS_RETURN_IF_ERROR(
        Allow(context.identity, Access::kJob, {.job = key, .owner = latest->owner}));
  }
  PERSEUS_ASSIGN_OR_RETURN(
      auto created, context.services.store.CreateJob(
                        {.key = spec.key,
                         .body = canonical,
                         .target = JsonText(job_planning::TargetJson(spec.target)),
                         .owner = owner,
                         .most_jobs = context.services.limits.options().jobs,
                         .most_jobs_of_owner = context.services.limits.options().jobs_of_owner},
                        context.now, context.By()));
  // A job with this key may belong to somebody else.
  PERSEUS_RETURN_IF_ERROR(
      Allow(context.identity, Access::kJob, {.job = key, .owner = created.job.owner}));
  if (!created.is_new && created.job.body != canonical) {
    return Refuse(
        409, "Another job has this key",
        fmt::format(
            "job {} runs with key \"{}\" and has another registration: {}", created.job.id,
            spec.key,
            Differences(nlohmann::json::parse(created.job.body), nlohmann::json::parse(body))),
        fmt::format("end it first: perseus job end {}, or choose another key", spec.key), "/key");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto view, ViewJob(context.services, created.job, context.now));
  return JsonResponse(view, created.is_new ? 201 : 200);
}

Answer<store::Store::Which> ReadWhich(const http::Request& request) {
  const auto all = request.query.find("all");
  if (all == request.query.end() || all->second == "0") return store::Store::Which::kRunning;
  if (all->second == "1") return store::Store::Which::kAll;
  return Refuse(400, "The request is wrong",
                fmt::format("all is {} (expected 0 or 1)", Excerpt(all->second)),
                "1 includes ended jobs", "?all");
}

Answer<http::Response> ListJobs(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto limit, ReadLimit(context.request, kDefaultJobs, kMaxJobs));
  PERSEUS_ASSIGN_OR_RETURN(const auto which, ReadWhich(context.request));
  const auto jobs = context.services.store.ListJobs(which, context.request.Query("after"), limit);
  if (!jobs) return Refuse(jobs, "?after");
  auto list = ordered_json::array();
  for (const store::JobRecord& job : *jobs) {
    const Resource resource{.job = job.key, .owner = job.owner};
    if (!Allow(context.identity, Access::kRead, resource)) continue;
    PERSEUS_ASSIGN_OR_RETURN(auto view, SummarizeJob(context.services, job, context.now));
    list.push_back(std::move(view));
  }
  ordered_json answer{{"jobs", std::move(list)}};
  if (static_cast<int>(jobs->size()) == limit) answer["next"] = jobs->back().id;
  return JsonResponse(answer);
}

Answer<http::Response> Show(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(auto view, ViewJob(context.services, *context.job, context.now));
  return JsonResponse(view);
}

Answer<http::Response> End(const Context& context) {
  const std::string& id = context.job->id;
  PERSEUS_RETURN_IF_ERROR(context.services.store.EndJob(id, context.now, context.By()));
  context.services.watches.Forget(id);
  return JsonResponse({{"id", id}, {"ended", true}});
}

// The frontier is a lower bound, and a plan with real clocks may need slightly more. So a target
// that is above the frontier by at most this fraction is accepted only if a plan for it is found.
constexpr double kCloseToFrontier = 0.05;

// Refuses a target for which no plan is found.
Answer<void> CheckHasPlan(const Context& context, const plan::Target& target) {
  auto plan = PlanOnRequest(context, target);
  if (plan) return {};
  http::Problem problem = std::move(plan.error());
  if (problem.status == 422) problem.pointer = "/value";
  return tl::unexpected(std::move(problem));
}

// Refuses a target below the frontier. A plan may draw less power than the plan of least energy. So
// a power cap below that power is accepted if a plan for it is found.
Answer<void> CheckAgainstFrontier(const Context& context, const std::string& frontier,
                                  const plan::Target& target) {
  const auto json = nlohmann::json::parse(frontier);
  const auto& fastest = json.at("points").front();
  const auto& least_energy = json.at("points").at(json.at("least_energy").get<std::size_t>());
  const double energy_j = least_energy.at("energy_j");
  const double time_s = least_energy.at("time_s");
  double least = 0;
  std::string_view unit;
  using Kind = plan::Target::Kind;
  switch (target.kind) {
    case Kind::kDeadline:
      least = fastest.at("time_s");
      unit = "s";
      break;
    case Kind::kEnergyBudget:
      least = energy_j;
      unit = "J";
      break;
    case Kind::kPowerCap:
      least = energy_j / time_s;
      unit = "W";
      break;
    default:
      return {};
  }
  if (target.value > least * (1 + kCloseToFrontier)) return {};
  if (target.value >= least || target.kind == Kind::kPowerCap) return CheckHasPlan(context, target);
  return Refuse(422, "The request is not possible",
                fmt::format("{} of an iteration is not possible: the least is {} {}",
                            Describe(target), plan::RoundedUp(least), unit),
                "request at least this value; the target has not changed", "/value");
}

// A target that expires returns to the target before. So that target must not change in the
// meantime.
Answer<void> StoreTarget(const Context& context, const job_planning::JobTarget& target,
                         const std::string& text) {
  store::Store& store = context.services.store;
  const store::JobRecord& job = *context.job;
  if (target.expires == 0) {
    PERSEUS_RETURN_IF_ERROR(store.SetTarget(job.id, text, context.now, context.By()));
    return {};
  }
  PERSEUS_ASSIGN_OR_RETURN(
      const bool is_set, store.ReplaceTarget(job.id, job.target, text, context.now, context.By()));
  if (is_set) return {};
  return Refuse(409, "The target has changed",
                "another request set the target of the job at the same time",
                "look at the new target, and send the request again");
}

Answer<http::Response> SetTarget(const Context& context) {
  const store::JobRecord& job = *context.job;
  PERSEUS_RETURN_IF_ERROR(RequireRunning(job));
  PERSEUS_ASSIGN_OR_RETURN(auto spec, job_planning::StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(const auto before, job_planning::TargetOf(job, spec.target));
  PERSEUS_ASSIGN_OR_RETURN(const auto set,
                           ReadBody(context.request.body, job_planning::kDeepestJobSpec,
                                    [&](const json_file::Node& node) {
                                      return job_planning::ReadNewTarget(node, before, context.now);
                                    }));
  const plan::Target& target = set.target;
  PERSEUS_ASSIGN_OR_RETURN(const auto frontier, context.services.store.FindFrontier(job.id));
  if (frontier) PERSEUS_RETURN_IF_ERROR(CheckAgainstFrontier(context, *frontier, target));
  // Without a frontier, the job may be too large for such a target. With a limit of clock changes,
  // the target may have no plan although it is above the frontier.
  if (plan::NeedsFrontier(target.kind) && (!frontier || spec.most_switches)) {
    PERSEUS_ASSIGN_OR_RETURN(const auto profile, context.services.store.FindProfile(job.id));
    if (profile) PERSEUS_RETURN_IF_ERROR(CheckHasPlan(context, target));
  }
  const ordered_json json = job_planning::JobTargetJson(set);
  PERSEUS_RETURN_IF_ERROR(StoreTarget(context, set, JsonText(json)));
  return JsonResponse({{"target", json}, {"name", Describe(set)}});
}

}  // namespace

void AddJobEndpoints(Endpoints& endpoints) {
  endpoints.Add("POST", "/v1/jobs", Access::kJob, Register, {.body_bytes = kMaxRegistrationBytes});
  endpoints.Add("GET", "/v1/jobs", Access::kReadAll, ListJobs,
                {.query = {"all", "after", "limit"}});
  endpoints.Add("GET", "/v1/jobs/{job}", Access::kRead, Show);
  endpoints.Add("POST", "/v1/jobs/{job}/end", Access::kJob, End);
  endpoints.Add("PUT", "/v1/jobs/{job}/target", Access::kJob, SetTarget);
}

}  // namespace perseus::server
