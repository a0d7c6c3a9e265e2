// Requests to a server that may be away: what the node asks in turn, without hammering one that
// does not answer, and without filling the log.
//
// Not thread safe.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <set>
#include <string>

#include "perseus/base/result.h"
#include "perseus/base/units.h"
#include "perseus/cluster/http/client.h"

namespace perseus::node {

class Uplink {
 public:
  using Send = std::function<Result<http::Response>(const http::Client::Outgoing&)>;

  Uplink(Send send, spdlog::logger& log) : send_(std::move(send)), log_(log) {}

  // Whether asking now makes sense: after a failure there is a pause, up to 5 s.
  bool IsUsable(Nanoseconds now) const { return now >= pause_until_; }
  // kSystem: no server could be reached; logged, once until one can. Any status is an answer.
  Result<http::Response> Request(const http::Client::Outgoing& request, Nanoseconds now);

  // Logs a warning that was not logged since the last Recovered(about).
  void WarnOnce(const std::string& about, const std::string& message);
  void Recovered(const std::string& about) { warned_.erase(about); }

 private:
  Send send_;
  spdlog::logger& log_;
  Nanoseconds pause_ = 0;
  Nanoseconds pause_until_ = 0;
  std::set<std::string> warned_;
};

bool IsSuccess(const http::Response& response);
// "503: no plan yet (ask later)", of a problem document or not.
std::string ProblemText(const http::Response& response);

}  // namespace perseus::node
