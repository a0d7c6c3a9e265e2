#include "perseus/runtime/agent/access_requests.h"

#include <filesystem>
#include <utility>

namespace perseus::agent {

using protocol::Refusal;

struct AccessRequests::Request {
  Caller caller;
  ConnectionId connection = 0;
  std::vector<GpuFile> files;
  Done done;
};

void AccessRequests::Check(const Caller& caller, ConnectionId connection,
                           std::vector<GpuFile> files, Done done) {
  auto identity = IdentityOf(host_, caller);
  if (!identity) return done(tl::unexpected<protocol::Refused>(identity.error()));
  auto request =
      std::make_shared<Request>(Request{caller, connection, std::move(files), std::move(done)});
  std::vector<std::filesystem::path> devices;
  for (const GpuFile& file : request->files) devices.push_back(file.device);
  const bool is_added =
      queue_.Add(*std::move(identity), std::move(devices),
                 [this, alive = is_alive_, request](AccessQueue::Answered answered) {
                   post_([this, alive, request, answered = std::move(answered)] {
                     if (*alive && waiting_.erase(request) > 0)
                       request->done(Judge(*request, answered));
                   });
                 });
  if (!is_added) {
    return request->done(Refuse(Refusal::kUnavailable,
                                "too many requests of user {} wait for a check (try again)",
                                caller.uid));
  }
  waiting_.insert(request);
}

Answer<Caller> AccessRequests::Judge(const Request& request,
                                     const AccessQueue::Answered& errors) const {
  const Caller& before = request.caller;
  if (!errors) {
    log_.warn("cannot check what process {} of user {} may use: {}", before.process.pid, before.uid,
              errors.error().message);
    return Refuse(Refusal::kUnavailable,
                  "cannot check which GPUs the user may use: {} (grant the GPU with perseus gpu "
                  "grant, as root)",
                  errors.error().message);
  }
  // The same process, still in the cgroups that the child joined.
  auto now = LookAgain(host_, before);
  if (!now) return now;
  if (now->cgroups != before.cgroups) {
    return Refuse(Refusal::kUnavailable, "process {} moved to another cgroup meanwhile (try again)",
                  now->process.pid);
  }
  for (std::size_t i = 0; i < request.files.size(); ++i) {
    if (const int error = (*errors)[i]; error != 0) {
      return tl::unexpected(NoRightTo(*now, request.files[i], error));
    }
  }
  return now;
}

void AccessRequests::EndOfConnection(ConnectionId connection) {
  std::erase_if(waiting_, [&](const auto& one) { return one->connection == connection; });
}

void AccessRequests::EndOfProcess(const ProcessId& process) {
  std::erase_if(waiting_, [&](const auto& one) { return one->caller.process == process; });
}

}  // namespace perseus::agent
