// Sends requests to a server that may be unreachable. After a failure, Uplink waits before the next
// request. It logs each problem once.
//
// Not thread safe.
#pragma once

#include <spdlog/logger.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
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

  // Whether a request may be sent now. After a failure there is a pause of up to 5 s. After a 429
  // or 503, the pause is as long as Retry-After says, up to 30 s.
  bool IsUsable(Nanoseconds now) const { return now >= pause_until_; }
  // Fails (kSystem) if no server can be reached, and logs this failure once. Any answer, whatever
  // its HTTP status, is a success.
  Result<http::Response> Request(const http::Client::Outgoing& request, Nanoseconds now);

  // Logs a warning about a subject such as a job. Until Recovered(about), later warnings with the
  // same `about` are not logged. If there are more than kMostWarned subjects, the oldest one is
  // forgotten, and its next warning is logged again.
  static constexpr std::size_t kMostWarned = 1000;
  void WarnOnce(const std::string& about, const std::string& message);
  void Recovered(const std::string& about);

 private:
  Send send_;
  spdlog::logger& log_;
  Nanoseconds pause_ = 0;
  Nanoseconds pause_until_ = 0;
  // The subjects, with the number of the warning. A server and the users of the node choose some of
  // the subjects, so their number is limited.
  std::map<std::string, std::int64_t> warned_;
  std::map<std::int64_t, std::string> warned_in_order_;
  std::int64_t warnings_ = 0;
};

bool IsSuccess(const http::Response& response);
// Returns the text of the member `name` (such as "job") in the JSON of an answer. Returns an empty
// text if the answer does not contain this member.
std::string TextOf(const http::Response& answer, const char* name);
// Returns the jobs of a report whose ranks on this node are not attached, from the server's answer.
// These jobs may have ended. Each job has the name that the report used.
std::set<std::string> NotAttachedOf(const http::Response& answer);
// Returns the jobs whose reports the server refused, and why. Named as in NotAttachedOf.
std::map<std::string, std::string> RefusedOf(const http::Response& answer);
// Whether the server takes this newer key of a report (protocol::kRunningKey).
bool Takes(const http::Response& answer, std::string_view key);
// Describes any response that is not a success: "503: no plan yet (ask later)".
std::string ProblemText(const http::Response& response);
// Whether the problem is that another process has this node's name.
bool IsNameConflict(const http::Response& problem);
// Whether the problem is that the ranks belong to another user than the job.
bool IsOfAnotherUser(const http::Response& problem);
// Whether the problem is that no such job runs.
bool IsUnknownJob(const http::Response& problem);

}  // namespace perseus::node
