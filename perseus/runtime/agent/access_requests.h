// Requests that wait until the agent knows whether their caller may use the GPUs.
//
// Not thread-safe. The checks run on other threads; `post` passes their answers to the thread of
// this object.
#pragma once

#include <spdlog/logger.h>
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "perseus/base/mutex.h"
#include "perseus/runtime/access/access_check.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/caller.h"
#include "perseus/runtime/agent/lease_table.h"

namespace perseus::agent {

// Threads for access checks, so that the event loop never waits for one.
//
// Fair: one check per account (user_budget.h) runs at a time. So a user whose checks hang (a frozen
// cgroup) holds only one thread, and only for the limits in access_check.h.
//
// Thread safe.
class AccessQueue {
 public:
  using Check = std::function<void(AccessChecker&)>;

  AccessQueue();
  // Stops the running checks, and drops the waiting ones.
  ~AccessQueue();
  AccessQueue(const AccessQueue&) = delete;
  AccessQueue& operator=(const AccessQueue&) = delete;

  // Calls `check` on a thread of the queue. Returns false, and makes no call, if kMostWaiting
  // checks of this account already wait.
  bool Add(uid_t account, Check check);

  static constexpr int kMostWaiting = 64;  // For one account: its ranks may all start at once.
  static constexpr int kThreads = 8;

 private:
  struct Waiting {
    uid_t account = 0;
    Check check;
  };

  void Work();
  std::deque<Waiting>::iterator FindReady() PERSEUS_REQUIRES(mutex_);

  AccessChecker checker_;
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Waiting> waiting_ PERSEUS_GUARDED_BY(mutex_);
  std::set<uid_t> running_ PERSEUS_GUARDED_BY(mutex_);
  bool is_ending_ PERSEUS_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// A question about a caller that is no administrator, and whose user has no grant: may the caller
// lease these GPUs? A grant to the caller's cgroup gives the right, and so does the kernel if it
// lets the caller use the GPUs.
struct AccessQuestion {
  Caller caller;
  std::vector<GpuFile> gpus;
  std::vector<protocol::Grant> grants;  // All grants of the agent.
};

// Refuses (kNotAllowed) a caller without the right. If the answer is unknown now, refuses with
// kUnavailable. May take as long as `checker` takes for a check. Any thread that may wait may call
// it.
Answer<void> JudgeAccess(const Host& host, const AccessQuestion& question, AccessChecker& checker);

class AccessRequests {
 public:
  // Runs its argument later on the thread of this object. Any thread may call it.
  using Post = std::function<void(std::function<void()>)>;
  // Receives the current caller after the check, or the reason why the caller may not use the GPUs.
  using Done = std::function<void(Answer<Caller>)>;

  AccessRequests(const Host& host, Post post, spdlog::logger& log)
      : host_(host), post_(std::move(post)), log_(log) {}
  ~AccessRequests() { *is_alive_ = false; }
  AccessRequests(const AccessRequests&) = delete;
  AccessRequests& operator=(const AccessRequests&) = delete;

  // Calls `done` now or later. Does not call it if the connection or the process has ended.
  void Check(AccessQuestion question, ConnectionId connection, Done done);
  void EndOfConnection(ConnectionId connection);
  void EndOfProcess(const ProcessId& process);

 private:
  struct Request;

  Answer<Caller> CallerNow(const Request& request, const Answer<void>& verdict) const;

  const Host host_;
  const Post post_;
  spdlog::logger& log_;
  // Only requests with a connection and a process that have not ended.
  std::set<std::shared_ptr<Request>> waiting_;
  // Tells answers of the queue that come late that this object no longer exists.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
  AccessQueue queue_;  // Ends first.
};

}  // namespace perseus::agent
