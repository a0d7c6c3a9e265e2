#include "perseus/runtime/agent/access_requests.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace perseus::agent {
namespace {

using protocol::Refusal;

// The kernel's answer for GPUs with device files.
Answer<void> AskKernel(const Host& host, const Caller& caller, const std::vector<GpuFile>& gpus,
                       AccessChecker& checker) {
  PERSEUS_ASSIGN_OR_RETURN(const auto identity, IdentityOf(host, caller));
  std::vector<std::filesystem::path> devices;
  for (const GpuFile& gpu : gpus) devices.push_back(gpu.device);
  const auto errors = checker.Check(identity, devices);
  if (!errors) {
    return Refuse(Refusal::kUnavailable,
                  "cannot check which GPUs the user may use: {} (grant the GPU with perseus gpu "
                  "grant, as root)",
                  errors.error().Message());
  }
  // The caller must still be in the cgroups that the child joined.
  PERSEUS_ASSIGN_OR_RETURN(const Caller now, WithCgroups(host, caller));
  if (now.cgroups != caller.cgroups) {
    return Refuse(Refusal::kUnavailable, "process {} moved to another cgroup meanwhile (try again)",
                  caller.process.pid);
  }
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (const int error = (*errors)[i]; error != 0) {
      return tl::unexpected(NoRightTo(caller, gpus[i], error));
    }
  }
  return {};
}

}  // namespace

AccessQueue::AccessQueue() {
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { Work(); });
}

AccessQueue::~AccessQueue() {
  {
    const MutexLock lock(mutex_);
    is_ending_ = true;
  }
  checker_.Stop();
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool AccessQueue::Add(uid_t account, Check check) {
  {
    const MutexLock lock(mutex_);
    const auto of_account = std::ranges::count(waiting_, account, &Waiting::account);
    if (of_account >= kMostWaiting) return false;
    waiting_.push_back({account, std::move(check)});
  }
  changed_.notify_one();
  return true;
}

std::deque<AccessQueue::Waiting>::iterator AccessQueue::FindReady() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end(); ++waiting) {
    if (!running_.contains(waiting->account)) return waiting;
  }
  return waiting_.end();
}

void AccessQueue::Work() {
  while (true) {
    Waiting next;
    {
      const MutexLock lock(mutex_);
      auto ready = FindReady();
      for (; !is_ending_ && ready == waiting_.end(); ready = FindReady()) changed_.wait(mutex_);
      if (is_ending_) return;
      next = std::move(*ready);
      waiting_.erase(ready);
      running_.insert(next.account);
    }
    next.check(checker_);
    {
      const MutexLock lock(mutex_);
      running_.erase(next.account);
    }
    changed_.notify_all();
  }
}

Answer<void> JudgeAccess(const Host& host, const AccessQuestion& question, AccessChecker& checker) {
  PERSEUS_ASSIGN_OR_RETURN(const Caller caller, WithCgroups(host, question.caller));
  std::vector<GpuFile> to_ask;
  for (const GpuFile& gpu : question.gpus) {
    if (HasNamedRightTo(caller, gpu.uuid, question.grants)) continue;
    if (gpu.device.empty()) return tl::unexpected(NoRightTo(caller, gpu, 0));
    to_ask.push_back(gpu);
  }
  if (to_ask.empty()) return {};
  return AskKernel(host, caller, to_ask, checker);
}

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
  return Fail(verdict);
}

void AccessRequests::EndOfConnection(ConnectionId connection) {
  std::erase_if(waiting_, [&](const auto& one) { return one->connection == connection; });
}

void AccessRequests::EndOfProcess(const ProcessId& process) {
  std::erase_if(waiting_, [&](const auto& one) { return one->caller.process == process; });
}

}  // namespace perseus::agent
