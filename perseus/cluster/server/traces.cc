#include "perseus/cluster/server/traces.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "perseus/base/clock.h"

namespace perseus::server {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

constexpr std::int64_t kNanosecondsOfMicrosecond = 1'000;
constexpr int kUnauthorizedStatus = 401;
constexpr int kLeastServerError = 500;

std::int64_t NsOf(double seconds) {
  return duration_cast<nanoseconds>(duration<double>(seconds)).count();
}

}  // namespace

bool Traces::IsOfPerson(const http::Request& request) {
  if (request.method == "GET" || request.method == "HEAD") return false;
  const std::string_view path = request.path;
  return (path.starts_with("/v1/jobs") || path.starts_with("/v1/tokens")) &&
         !path.ends_with("/measurements") && !path.ends_with("/next-clocks");
}

void Traces::AddRequest(const http::Request& request, std::string_view pattern, int status,
                        double seconds) {
  // Clients without a valid token cannot fill the queue.
  if (pattern.empty() || status == kUnauthorizedStatus) return;
  if (request.parent.empty() && !IsOfPerson(request)) return;
  const std::int64_t end = SinceEpoch();
  exporter_.Add({.trace = request.trace,
                 .span = request.span,
                 .parent = request.parent,
                 .name = fmt::format("{} {}", request.method, pattern),
                 .kind = otlp::Span::Kind::kServer,
                 .begin_ns = end - NsOf(seconds),
                 .end_ns = end,
                 .attributes = {{"http.request.method", request.method},
                                {"http.route", std::string(pattern)},
                                {"url.path", request.path},
                                {"http.response.status_code", std::int64_t{status}},
                                {"client.address", request.peer}},
                 .error = status >= kLeastServerError ? fmt::format("status {}", status) : ""});
}

void Traces::AddPlanning(const job_planning::PlanningReport& report) {
  // Plannings that are due by time and change nothing would fill the collector.
  if (!report.trace || (report.trace->parent.empty() && !report.has_assignment)) return;
  const std::int64_t end = SinceEpoch();
  exporter_.Add({.trace = report.trace->trace,
                 .span = report.trace->span,
                 .parent = report.trace->parent,
                 .name = "plan",
                 .begin_ns = end - NsOf(report.seconds),
                 .end_ns = end,
                 .attributes = {{"perseus.job", report.job},
                                {"perseus.planning.status",
                                 report.is_kept ? report.status : std::string("superseded")}},
                 .error = report.status == "failed" ? report.problem : ""});
}

void Traces::AddNode(const std::string& node, const std::vector<protocol::JobReport>& reports,
                     const std::vector<std::string>& not_attached) {
  for (const protocol::JobReport& report : reports) {
    if (report.spans.empty() || std::ranges::count(not_attached, report.job) != 0) continue;
    for (const protocol::NodeSpan& of_node : report.spans) {
      const bool is_applied = of_node.kind == protocol::NodeSpan::Kind::kApplied;
      otlp::Span span{
          .trace = of_node.trace,
          .span = of_node.span,
          .parent = of_node.parent,
          .name = is_applied ? "apply assignment" : "first step on plan",
          .kind = is_applied ? otlp::Span::Kind::kConsumer : otlp::Span::Kind::kInternal,
          .begin_ns = of_node.begin_us * kNanosecondsOfMicrosecond,
          .end_ns = of_node.end_us * kNanosecondsOfMicrosecond,
          .attributes = {{"perseus.job", report.job},
                         {"perseus.assignment.version", of_node.version}},
          .node = node};
      if (of_node.step >= 0) span.attributes.emplace_back("perseus.step", of_node.step);
      exporter_.Add(std::move(span));
    }
  }
}

}  // namespace perseus::server
