// The endpoints of the audit trail (perseus/cluster/store/audit.h). One endpoint returns the trail
// of the whole server, for operators. The other endpoint returns the trail of one job.
#include <fmt/core.h>

#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/number.h"
#include "perseus/base/time_text.h"
#include "perseus/cluster/server/api/endpoints.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

constexpr int kDefaultRecords = 100;
constexpr int kMaxRecords = 1000;

ordered_json ValueOf(const std::string& text) {
  if (text.empty()) return nullptr;
  return ParseOrderedJson(text);
}

ordered_json RecordJson(const store::AuditRecord& record) {
  return {{"number", record.number},
          {"at", TimeText(record.at)},
          {"at_ms", record.at.count()},
          {"action", record.action},
          {"job", record.job},
          {"key", record.key},
          {"subject", record.subject},
          {"who", record.by.id},
          {"name", record.by.name},
          {"role", store::RoleOf(record.by)},
          {"peer", record.by.peer},
          {"trace", record.by.trace},
          {"before", ValueOf(record.before)},
          {"after", ValueOf(record.after)},
          {"reason", record.by.reason}};
}

Answer<std::int64_t> ReadNumber(const http::Request& request, const std::string& name,
                                std::int64_t otherwise) {
  const std::string_view text = request.Query(name);
  if (text.empty()) return otherwise;
  const auto number = ParseNumber<std::int64_t>(text);
  if (number && *number >= 0) return *number;
  return Refuse(400, "The request is wrong",
                fmt::format("{} is {} (expected a whole number from 0)", name, Excerpt(text)),
                "see GET /openapi.yaml", "?" + name);
}

Answer<store::AuditFilter> ReadFilter(const Context& context) {
  const http::Request& request = context.request;
  store::AuditFilter filter{.job = std::string(request.Query("job")),
                            .who = std::string(request.Query("who")),
                            .action = std::string(request.Query("action"))};
  PERSEUS_ASSIGN_OR_RETURN(filter.limit, ReadLimit(request, kDefaultRecords, kMaxRecords));
  std::int64_t since_ms = 0;
  for (const auto& [name, value] :
       {std::pair{"after", &filter.after}, {"before", &filter.before}, {"since_ms", &since_ms}}) {
    PERSEUS_ASSIGN_OR_RETURN(*value, ReadNumber(request, name, *value));
  }
  filter.since = Milliseconds(since_ms);
  const std::string_view order = request.Query("order");
  if (!order.empty() && order != "newest" && order != "oldest") {
    return Refuse(400, "The request is wrong",
                  fmt::format("order is {} (expected newest or oldest)", Excerpt(order)),
                  "the default is newest", "?order");
  }
  filter.newest_first = order != "oldest";
  return filter;
}

Answer<http::Response> List(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(auto filter, ReadFilter(context));
  if (context.job) filter.job = context.job->id;
  PERSEUS_ASSIGN_OR_RETURN(const auto records, context.services.store.ListAudit(filter));
  auto list = ordered_json::array();
  for (const store::AuditRecord& record : records) list.push_back(RecordJson(record));
  ordered_json answer{{"records", std::move(list)}};
  if (static_cast<int>(records.size()) == filter.limit) answer["next"] = records.back().number;
  return JsonResponse(answer);
}

}  // namespace

void AddAuditEndpoints(Endpoints& endpoints) {
  const std::vector<std::string> query{"after",  "before", "since_ms", "who",
                                       "action", "order",  "limit"};
  auto with_job = query;
  with_job.emplace_back("job");
  endpoints.Add("GET", "/v1/audit", Access::kOperator, List, {.query = with_job});
  endpoints.Add("GET", "/v1/jobs/{job}/audit", Access::kRead, List, {.query = query});
}

}  // namespace perseus::server
