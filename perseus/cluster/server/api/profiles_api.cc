// Profiles of jobs.
#include <fmt/format.h>

#include "perseus/cluster/job_planning/planning.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_view.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

void AddProfileEndpoints(Endpoints& endpoints) {
  endpoints.Add("PUT", "/v1/jobs/{job}/profile", Access::kJob, PutProfile,
                {.body_bytes = kMaxProfileBytes, .media_type = "text/csv"});
  endpoints.Add("GET", "/v1/jobs/{job}/profile", Access::kRead, GetProfile);
}

}  // namespace perseus::server
