// What the server answers, endpoint by endpoint: who may call it, and the function that does it.
//
// Those functions are plain: they block on the store, on a thread of the pool, and know nothing of
// connections. The server's loop calls them through Endpoints::Register.
//
// Only for .cc files that link nlohmann_json.
#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <map>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/answer.h"
#include "perseus/cluster/server/job_watch.h"
#include "perseus/cluster/server/node_reports.h"
#include "perseus/cluster/server/plan_cuts.h"
#include "perseus/cluster/server/rights.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class EventHub;

// All that endpoints work with. Thread safe, every one.
struct Services {
  store::Store& store;
  Rights& rights;
  JobWatches& watches;
  NodeReports& reports;
  PlanCuts& cuts;
  std::function<store::Milliseconds()> now;
  std::function<std::string()> metrics;  // Prometheus' text.
  std::function<Answer<void>()> is_ready;
  std::string openapi;                 // The document.
  std::atomic<int>& plans_on_request;  // Being made now.
  std::stop_token ends;                // Requested when the server ends: no plans any more.
};

struct Context {
  const Services& services;
  const http::Request& request;
  const std::map<std::string, std::string, std::less<>>& path;
  Principal principal;
  std::optional<store::JobRecord> job;  // There if the pattern has a {job}.
  store::Milliseconds now = 0;

  const std::string& Path(std::string_view name) const { return path.find(name)->second; }
};
using Endpoint = std::function<Answer<http::Response>(const Context&)>;

class Endpoints {
 public:
  Endpoints(const Services& services, boost::asio::thread_pool& pool)
      : services_(services), pool_(pool) {}

  // Answered on the loop, whatever the database does: `endpoint` must not wait for anything, and
  // the pattern has no {job}.
  void AddAtOnce(std::string method, std::string pattern, Access access, Endpoint endpoint);
  // While the database does not answer, 503 at once: requests that wait for it would pile up.
  // A {job} in the pattern is looked up, by id or key, before `endpoint` runs: 404 if there is
  // none.
  void Add(std::string method, std::string pattern, Access access, Endpoint endpoint,
           http::Takes takes = {});
  // The same, but its answer opens an event stream or waits; on the loop.
  using Waiting = std::function<boost::asio::awaitable<http::Response>(http::Call&, Context)>;
  void AddWaiting(std::string method, std::string pattern, Access access, Waiting endpoint,
                  http::Takes takes = {});

  http::Router TakeRouter() { return std::move(router_); }

 private:
  http::Response Answered(const http::Call& call, Access access, const Endpoint& endpoint) const;

  const Services& services_;
  boost::asio::thread_pool& pool_;
  http::Router router_;
};

// Each adds a group of endpoints; docs/server.md lists them.
void AddJobEndpoints(Endpoints& endpoints);
void AddProfileEndpoints(Endpoints& endpoints);
void AddPlanEndpoints(Endpoints& endpoints);
void AddStragglerEndpoints(Endpoints& endpoints);
void AddNodeEndpoints(Endpoints& endpoints, EventHub& hub, boost::asio::thread_pool& pool);
void AddZeusEndpoints(Endpoints& endpoints, boost::asio::thread_pool& pool);
void AddTokenEndpoints(Endpoints& endpoints);
void AddStatusEndpoints(Endpoints& endpoints);

// "?limit=50", from 1 to `most`.
Answer<int> ReadLimit(const http::Request& request, int otherwise, int most);
// RFC 3339, UTC, to the millisecond.
std::string TimeText(store::Milliseconds time);

}  // namespace perseus::server
