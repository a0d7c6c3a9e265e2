// Requests that wait until it is known whether their caller may use the GPUs.
//
// Not thread-safe. `post` brings the answers of the checks' threads to the thread of this object.
#pragma once

#include <spdlog/logger.h>

#include <functional>
#include <memory>
#include <set>
#include <utility>

#include "perseus/runtime/access/access_judgment.h"
#include "perseus/runtime/access/access_queue.h"
#include "perseus/runtime/access/answer.h"
#include "perseus/runtime/access/caller.h"
#include "perseus/runtime/agent/lease_table.h"

namespace perseus::agent {

class AccessRequests {
 public:
  // Runs its argument later on the thread of this object. Any thread may call it.
  using Post = std::function<void(std::function<void()>)>;
  // The caller as it is after the check, or why it may not use the GPUs.
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
  // Without those whose connection or process has ended.
  std::set<std::shared_ptr<Request>> waiting_;
  // Protects answers of the queue from an object that no longer exists.
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);
  AccessQueue queue_;  // Ends first.
};

}  // namespace perseus::agent
