#include "perseus/runtime/agent/access_requests.h"

#include <utility>

namespace perseus::agent {

using protocol::Refusal;

struct AccessRequests::Request {
  Caller caller;
  ConnectionId connection = 0;
  Done done;
};

void AccessRequests::Check(AccessQuestion question, ConnectionId connection, Done done) {
  auto request = std::make_shared<Request>(Request{question.caller, connection, std::move(done)});
  const uid_t user = question.caller.uid;
  const bool is_added =
      queue_.Add(question.caller.account, [this, alive = is_alive_, request, host = host_,
                                           asked = std::move(question)](AccessChecker& checker) {
        post_([this, alive, request, verdict = JudgeAccess(host, asked, checker)] {
          if (*alive && waiting_.erase(request) > 0) request->done(CallerNow(*request, verdict));
        });
      });
  if (!is_added) {
    return request->done(Refuse(Refusal::kUnavailable,
                                "too many requests of user {} wait for a check (try again)", user));
  }
  waiting_.insert(request);
}

Answer<Caller> AccessRequests::CallerNow(const Request& request,
                                         const Answer<void>& verdict) const {
  if (verdict) return LookAgain(host_, request.caller);
  if (verdict.error().code == Refusal::kUnavailable) {
    log_.warn("process {} of user {}: {}", request.caller.process.pid, request.caller.uid,
              verdict.error().message);
  }
  return tl::unexpected<protocol::Refused>(verdict.error());
}

void AccessRequests::EndOfConnection(ConnectionId connection) {
  std::erase_if(waiting_, [&](const auto& one) { return one->connection == connection; });
}

void AccessRequests::EndOfProcess(const ProcessId& process) {
  std::erase_if(waiting_, [&](const auto& one) { return one->caller.process == process; });
}

}  // namespace perseus::agent
