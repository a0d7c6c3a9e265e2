// The endpoints of stragglers, which a monitoring system, a data loader or a person reports.
#include <fmt/core.h>

#include <array>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/units.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/job_view.h"

namespace perseus::server {
namespace {

using json_file::Node;

constexpr int kDeepestStraggler = 2;
constexpr double kMaxSlowdown = 100;
constexpr double kMaxSeconds = 1e8;  // Three years.
// The default duration of a report without expires_in. A report that nobody withdraws must not slow
// a job for weeks.
constexpr Milliseconds kForecastLasts = 60'000;
constexpr Milliseconds kReportLasts = 3'600'000;

Milliseconds ReadSeconds(const Node& node) {
  return FromSeconds(node.Number(0, kMaxSeconds, "seconds"));
}

store::StragglerRecord ReadStraggler(const Node& node, const Context& context,
                                     store::StragglerSource source) {
  constexpr std::array<std::string_view, 4> kForecast{"dp_rank", "slowdown", "starts_in",
                                                      "expires_in"};
  const std::span<const std::string_view> keys(kForecast);
  const bool is_forecast = source == store::StragglerSource::kForecast;
  node.RequireObject(is_forecast ? keys : keys.subspan(1));
  store::StragglerRecord straggler;
  straggler.job = context.job->id;
  straggler.source = source;
  straggler.slowdown =
      node.Member("slowdown").Number(1, kMaxSlowdown, "T'/T, such as 1.25 (1: no slowdown)");
  straggler.starts = context.now;
  if (node.Has("starts_in")) straggler.starts += ReadSeconds(node.Member("starts_in"));
  if (node.Has("expires_in")) {
    straggler.expires = context.now + ReadSeconds(node.Member("expires_in"));
  } else {
    straggler.expires = straggler.starts + (is_forecast ? kForecastLasts : kReportLasts);
  }
  if (straggler.expires <= straggler.starts) {
    json_file::ThrowAt(
        node.Has("expires_in") ? "expires_in" : "starts_in",
        "leaves no time between start and end (expires_in has to be larger than starts_in)");
  }
  if (is_forecast) {
    straggler.dp_rank = node.Member("dp_rank").Count(0, kMostPipelines - 1, "a pipeline, from 0");
  }
  return straggler;
}

Answer<int> ReadPipeline(const Context& context, std::string_view text) {
  const auto pipeline = ParseNumber<int>(text);
  if (!pipeline || *pipeline < 0) {
    return Refuse(404, "There is no such pipeline",
                  fmt::format("{} is not the number of a pipeline", Excerpt(text)),
                  fmt::format("the pipelines of job {} are numbered from 0", context.job->key));
  }
  return *pipeline;
}

Answer<void> CheckPipeline(const Context& context, int pipeline, std::string pointer) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(context.job->body));
  if (pipeline < spec.planned.pipelines) return {};
  const int status = pointer.empty() ? 404 : 400;
  return Refuse(status, "There is no such pipeline",
                fmt::format("job {} has the pipelines 0 to {}, and not {}", context.job->key,
                            spec.planned.pipelines - 1, pipeline),
                "give one of these numbers", std::move(pointer));
}

Answer<http::Response> Keep(const Context& context, const store::StragglerRecord& straggler) {
  PERSEUS_RETURN_IF_ERROR(RequireRunning(*context.job));
  PERSEUS_RETURN_IF_ERROR(
      context.services.store.PutStraggler(straggler, context.now, context.By()));
  PERSEUS_ASSIGN_OR_RETURN(const auto all, context.services.store.ListStragglers(context.job->id));
  return JsonResponse(StragglerJson(straggler, all, context.now));
}

Answer<http::Response> PutStraggler(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto pipeline, ReadPipeline(context, context.Path("dp_rank")));
  PERSEUS_RETURN_IF_ERROR(CheckPipeline(context, pipeline, ""));
  PERSEUS_ASSIGN_OR_RETURN(auto straggler,
                           ReadBody(context.request.body, kDeepestStraggler, [&](const Node& node) {
                             return ReadStraggler(node, context, store::StragglerSource::kReport);
                           }));
  straggler.dp_rank = pipeline;
  return Keep(context, straggler);
}

Answer<http::Response> Forecast(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto straggler,
                           ReadBody(context.request.body, kDeepestStraggler, [&](const Node& node) {
                             return ReadStraggler(node, context, store::StragglerSource::kForecast);
                           }));
  PERSEUS_RETURN_IF_ERROR(CheckPipeline(context, straggler.dp_rank, "/dp_rank"));
  return Keep(context, straggler);
}

// Withdraws what clients declared. A detected straggler stays, because it is measured: it ends when
// the pipeline is fast again.
Answer<http::Response> Delete(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto pipeline, ReadPipeline(context, context.Path("dp_rank")));
  PERSEUS_RETURN_IF_ERROR(CheckPipeline(context, pipeline, ""));
  bool existed = false;
  using enum store::StragglerSource;
  for (const auto source : {kReport, kForecast}) {
    PERSEUS_ASSIGN_OR_RETURN(const auto deleted,
                             context.services.store.DeleteStraggler(
                                 context.job->id, pipeline, source, context.now, context.By()));
    existed = existed || deleted;
  }
  nlohmann::ordered_json answer{{"dp_rank", pipeline}, {"deleted", existed}};
  PERSEUS_ASSIGN_OR_RETURN(const auto left, context.services.store.ListStragglers(context.job->id));
  if (const auto detected = DetectedSlowdown(left, pipeline, context.now)) {
    answer["detected"] = *detected;
  }
  return JsonResponse(answer);
}

Answer<http::Response> ListStragglers(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto stragglers,
                           context.services.store.ListStragglers(context.job->id));
  auto list = nlohmann::ordered_json::array();
  for (const store::StragglerRecord& straggler : stragglers) {
    list.push_back(StragglerJson(straggler, stragglers, context.now));
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto past, context.services.store.ListPastStragglers(
                                                context.job->id, store::Store::kMaxPastStragglers));
  auto past_list = nlohmann::ordered_json::array();
  for (const store::PastStragglerRecord& straggler : past) {
    past_list.push_back(PastStragglerJson(straggler));
  }
  return JsonResponse({{"stragglers", std::move(list)}, {"past", std::move(past_list)}});
}

}  // namespace

void AddStragglerEndpoints(Endpoints& endpoints) {
  endpoints.Add("GET", "/v1/jobs/{job}/stragglers", Access::kRead, ListStragglers);
  endpoints.Add("PUT", "/v1/jobs/{job}/stragglers/{dp_rank}", Access::kJob, PutStraggler);
  endpoints.Add("DELETE", "/v1/jobs/{job}/stragglers/{dp_rank}", Access::kJob, Delete);
  endpoints.Add("POST", "/v1/jobs/{job}/forecasts", Access::kJob, Forecast);
}

}  // namespace perseus::server
