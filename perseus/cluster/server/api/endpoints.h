// The endpoints of the API. Each endpoint has a function that answers requests, and a rule for who
// may call it.
//
// The functions of the endpoints run on a thread of the pool, because they wait for the store. They
// do not use connections.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <string>
#include <string_view>

#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/events/plan_cuts.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/server/identity/caller_limits.h"
#include "perseus/cluster/server/identity/rights.h"
#include "perseus/cluster/store/store.h"
#include "perseus/cluster/telemetry/job_watch.h"
#include "perseus/cluster/telemetry/node_reports.h"

namespace perseus::server {

class EventHub;
class ForeignIdentities;

// Limits how many requests that need much memory or time run at once. Each running request holds a
// place.
using Places = std::counting_semaphore<>;
struct ReleasePlace {
  void operator()(Places* places) const { places->release(); }
};
using Place = std::unique_ptr<Places, ReleasePlace>;
inline constexpr std::size_t kLargeBodyBytes = 64 << 10;

// The services that endpoints use. Each service is thread safe.
struct Services {
  store::Store& store;
  Rights& rights;
  telemetry::JobWatches& watches;
  telemetry::NodeReports& reports;
  PlanCuts& cuts;
  CallerLimits& limits;
  WaitingRequests& waiting;
  // For bodies longer than kLargeBodyBytes. A parsed body needs far more memory than its text.
  Places& large_bodies;
  std::function<Milliseconds()> now;
  std::function<std::string()> metrics;     // The metrics in the text format of Prometheus.
  std::function<Answer<void>()> is_ready;   // Whether requests may use the database.
  std::function<Answer<void>()> readiness;  // The readiness for load balancers (database_probe.h).
  // Limits plans on request, so that threads remain for other requests.
  Places& plans_on_request;
  std::stop_token ends;                  // Requested when the server ends. Stops planning.
  ForeignIdentities* foreign = nullptr;  // Used only on the loop. Null without --identities.
};

struct Context {
  const Services& services;
  const http::Request& request;
  const http::Fields& path;
  Identity identity;
  std::string reason;                   // The caller's reason for a change. May be empty.
  std::optional<store::JobRecord> job;  // Set if the pattern has a {job}.
  Milliseconds now = 0;

  const std::string& Path(std::string_view name) const { return path.find(name)->second; }
  // Returns who makes a change, for the audit trail.
  store::Author By() const;
};
using Endpoint = std::function<Answer<http::Response>(const Context&)>;

class Endpoints {
 public:
  Endpoints(const Services& services, boost::asio::thread_pool& pool)
      : services_(services), pool_(pool) {}

  // Adds an endpoint that answers on the loop, even if the database is unavailable. `endpoint` must
  // not block, and the pattern must not have a {job}.
  void AddAtOnce(std::string method, std::string pattern, Access access, Endpoint endpoint);
  // Adds an endpoint that runs on the pool. While the database is unavailable, the answer is 503 at
  // once, so that requests do not pile up. If the pattern has a {job}, the job is read by id or key
  // before `endpoint` runs. The answer is 404 if the job does not exist.
  void Add(std::string method, std::string pattern, Access access, Endpoint endpoint,
           http::Takes takes = {});
  // The same for an endpoint that opens an event stream or awaits something. The endpoint runs on
  // the loop.
  using Waiting = std::function<boost::asio::awaitable<http::Response>(http::Call&, Context)>;
  void AddWaiting(std::string method, std::string pattern, Access access, Waiting endpoint,
                  http::Takes takes = {});

  http::Router TakeRouter() { return std::move(router_); }

 private:
  // Calls `run` on the loop when the caller is known. With `needs_database`, the answer is 503
  // while the database is unavailable.
  void AddRoute(std::string method, std::string pattern, Access access, bool needs_database,
                Waiting run, http::Takes takes);

  const Services& services_;
  boost::asio::thread_pool& pool_;
  http::Router router_;
};

// Each function adds a group of endpoints. docs/server.md lists them.
void AddJobEndpoints(Endpoints& endpoints);
void AddPlanEndpoints(Endpoints& endpoints);
void AddStragglerEndpoints(Endpoints& endpoints);
void AddNodeEndpoints(Endpoints& endpoints, EventHub& hub, boost::asio::thread_pool& pool);
void AddTokenEndpoints(Endpoints& endpoints);
void AddAuditEndpoints(Endpoints& endpoints);
void AddStatusEndpoints(Endpoints& endpoints);

// The text of docs/openapi.yaml at the time of the build.
std::string_view OpenApiDocument();
// Fails with 400 if `name` cannot be the name of a node.
Answer<void> CheckNodeName(std::string_view name);
// Returns the problem (401) for a token that was revoked or has expired while a request was
// waiting.
http::Problem TokenIsGone();
// Reads "?limit=50", from 1 to `most`. Returns `otherwise` if the request has no limit.
Answer<int> ReadLimit(const http::Request& request, int otherwise, int most);
// Returns the seconds from `time` to `now`, or 0 if `time` is later than `now`. (The machine's
// clock may have been set back before the server started again.)
double SecondsSince(Milliseconds time, Milliseconds now);

}  // namespace perseus::server
