// The endpoints of a job's profile, frontier, plans and assignments.
#include <fmt/core.h>

#include <set>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/base/time_text.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_view.h"
#include "perseus/cluster/server/api/plan_on_request.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

constexpr int kDefaultListed = 20;
constexpr int kMaxListed = 200;
constexpr std::size_t kMaxProfileBytes = 64 << 20;

// Stores the profile if planning can use it.
Answer<http::Response> PutProfile(const Context& context) {
  const store::JobRecord& job = *context.job;
  const std::string& csv = context.request.body;
  PERSEUS_RETURN_IF_ERROR(RequireRunning(job));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto prepared,
      job_planning::PrepareJob(job, {.version = job.profile_version + 1, .csv = csv}));
  PERSEUS_ASSIGN_OR_RETURN(const auto version, context.services.store.PutProfile(
                                                   job.id, csv, context.now, context.By()));
  ordered_json answer{{"profile_version", version}, {"planning", "due"}};
  if (!prepared.warnings.empty()) answer["warnings"] = prepared.warnings;
  return JsonResponse(answer, 202);
}

Answer<http::Response> GetProfile(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto profile, context.services.store.FindProfile(context.job->id));
  if (!profile) {
    return Refuse(404, "There is no profile yet", "the job has no profile",
                  "send one with perseus job register");
  }
  http::Response response;
  response.content_type = "text/csv; charset=utf-8";
  response.body = profile->csv;
  response.fields.emplace_back("ETag", fmt::format("\"{}\"", profile->version));
  return response;
}

http::Response PlanResponse(const store::PlanRecord& plan) {
  http::Response response;
  response.body = plan.body;
  response.fields.emplace_back("ETag", fmt::format("\"{}\"", plan.id));
  return response;
}

Answer<http::Response> GetFrontier(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(auto frontier, context.services.store.FindFrontier(context.job->id));
  if (!frontier) {
    return Refuse(
        404, "There is no frontier yet",
        context.job->profile_version == 0
            ? "the job has no profile to plan with"
            : "planning has not finished, or the job has too many instructions for a server",
        "see the status of the job; perseus plan can compute any frontier");
  }
  http::Response response;
  response.body = *std::move(frontier);
  return response;
}

Answer<http::Response> ListPlans(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto limit,
                           ReadLimit(context.request, kDefaultListed, kMaxListed));
  PERSEUS_ASSIGN_OR_RETURN(const auto plans,
                           context.services.store.ListPlans(context.job->id, limit));
  auto list = ordered_json::array();
  for (const store::PlanRecord& plan : plans) {
    list.push_back({{"id", plan.id},
                    {"target", plan.slug},
                    {"profile_version", plan.profile_version},
                    {"created", TimeText(plan.created)}});
  }
  return JsonResponse({{"plans", std::move(list)}});
}

// Returns the plan that dp_rank 0 follows.
Answer<store::PlanRecord> CurrentPlan(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto assignment,
                           context.services.store.FindNewestAssignment(context.job->id));
  if (!assignment) {
    return Refuse(404, "There is no plan in force", "planning has not made a plan yet",
                  "see the status of the job");
  }
  const store::PlannedAssignment& planned = assignment->assignment;
  if (planned.pipelines.empty()) {
    return Refuse(404, "There is no plan in force", "the plan was taken back: " + planned.reason,
                  "send a new profile, or set the target again");
  }
  PERSEUS_ASSIGN_OR_RETURN(auto plan,
                           context.services.store.FindPlanById(planned.pipelines.front().plan));
  if (!plan)
    return Refuse(404, "There is no such plan", "it was too old and was deleted",
                  "request the plan of its target");
  return *std::move(plan);
}

Answer<http::Response> GetPlan(const Context& context) {
  const std::string& name = context.Path("target");
  store::Store& store = context.services.store;
  if (name == "current") {
    PERSEUS_ASSIGN_OR_RETURN(const auto plan, CurrentPlan(context));
    return PlanResponse(plan);
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto kept, name.starts_with("p-")
                                                ? store.FindPlanById(name)
                                                : store.FindPlan(context.job->id, name));
  if (kept && kept->job == context.job->id) return PlanResponse(*kept);
  const auto target = job_planning::TargetOfSlug(name);
  if (!target) {
    return Refuse(404, "There is no such plan",
                  fmt::format("{} is not the name of a plan", Excerpt(name)),
                  "such as no-slowdown, slowdown-5, deadline-2.9s, energy-budget-5000j, "
                  "power-cap-1200w, least-energy, least-energy-delay, current, or a plan's id");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, PlanOnRequest(context, *target));
  return PlanResponse(plan);
}

Answer<http::Response> ListAssignments(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto limit,
                           ReadLimit(context.request, kDefaultListed, kMaxListed));
  PERSEUS_ASSIGN_OR_RETURN(const auto assignments,
                           context.services.store.ListAssignments(context.job->id, limit));
  auto list = ordered_json::array();
  for (const store::AssignmentRecord& record : assignments) {
    ordered_json json{{"version", record.version}, {"created", TimeText(record.created)}};
    json.update(JsonOf(record.assignment));
    list.push_back(std::move(json));
  }
  return JsonResponse({{"assignments", std::move(list)}});
}

// Reads a list of pp_ranks, such as "3,4".
Answer<std::set<int>> ReadRanks(std::string_view text) {
  std::set<int> ranks;
  for (std::size_t comma = 0; comma != std::string_view::npos;) {
    comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const auto rank = ParseNumber<int>(word);
    if (!rank || *rank < 0) {
      return Refuse(400, "The request is wrong", fmt::format("{} is not a pp_rank", Excerpt(word)),
                    "comma-separated whole numbers, such as 3,4", "?pp_ranks");
    }
    ranks.insert(*rank);
  }
  return ranks;
}

tl::unexpected<http::Problem> NoSuchPlan(const std::string& id) {
  return Refuse(404, "There is no such plan", fmt::format("no plan has the id {}", Excerpt(id)),
                "see GET /v1/jobs/J/plans");
}

// Returns a plan by id, whole or cut, for nodes.
Answer<http::Response> GetPlanById(const Context& context) {
  const std::string& id = context.Path("plan");
  PERSEUS_ASSIGN_OR_RETURN(auto record, context.services.store.FindPlanById(id));
  std::optional<store::JobRecord> job;
  if (record) {
    PERSEUS_ASSIGN_OR_RETURN(job, context.services.store.FindJob(record->job));
  }
  Resource resource;
  if (job) resource = {.job = job->key, .owner = job->owner};
  PERSEUS_RETURN_IF_ERROR(Allow(context.identity, Access::kRead, resource));
  if (!record) return NoSuchPlan(id);
  const auto requested = context.request.query.find("pp_ranks");
  if (requested == context.request.query.end()) return PlanResponse(*record);
  PERSEUS_ASSIGN_OR_RETURN(const auto ranks, ReadRanks(requested->second));
  const auto cut = context.services.cuts.Get(id, ranks);
  if (!cut) return Refuse(cut, "?pp_ranks");
  if (!*cut) return NoSuchPlan(id);  // The plan was deleted in the meantime.
  http::Response response;
  response.body = **cut;
  return response;
}

}  // namespace

void AddPlanEndpoints(Endpoints& endpoints) {
  endpoints.Add("PUT", "/v1/jobs/{job}/profile", Access::kJob, PutProfile,
                {.body_bytes = kMaxProfileBytes, .media_type = "text/csv"});
  endpoints.Add("GET", "/v1/jobs/{job}/profile", Access::kRead, GetProfile);
  endpoints.Add("GET", "/v1/jobs/{job}/frontier", Access::kRead, GetFrontier);
  endpoints.Add("GET", "/v1/jobs/{job}/plans", Access::kRead, ListPlans, {.query = {"limit"}});
  endpoints.Add("GET", "/v1/jobs/{job}/plans/{target}", Access::kRead, GetPlan);
  endpoints.Add("GET", "/v1/jobs/{job}/assignments", Access::kRead, ListAssignments,
                {.query = {"limit"}});
  endpoints.Add("GET", "/v1/plans/{plan}", Access::kRead, GetPlanById, {.query = {"pp_ranks"}});
}

}  // namespace perseus::server
