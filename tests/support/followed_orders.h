// For tests: which orders of a job's directory hold, step by step, as a rank's client takes them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>
#include <vector>

#include "perseus/runtime/protocol/orders.h"

namespace perseus {

class FollowedOrders {
 public:
  explicit FollowedOrders(std::filesystem::path job_directory)
      : job_directory_(std::move(job_directory)) {}

  // Looks for new ones first. Version 0: none. Steps come in ascending order.
  const protocol::Orders& At(std::int64_t step) {
    const auto read = protocol::ReadOrders(job_directory_);
    if (read && *read && (waiting_.empty() || waiting_.back().version < (*read)->version)) {
      waiting_.push_back(**read);
    }
    for (const protocol::Orders& orders : waiting_) {
      if (orders.from_step <= step && orders.version > orders_.version) orders_ = orders;
    }
    if (orders_.until_step && *orders_.until_step <= step) orders_ = None();
    return orders_;
  }

 private:
  static protocol::Orders None() { return {.version = 0}; }

  std::filesystem::path job_directory_;
  std::vector<protocol::Orders> waiting_;
  protocol::Orders orders_ = None();
};

}  // namespace perseus
