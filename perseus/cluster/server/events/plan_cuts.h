// Returns plan files that are cut to the part that one node needs (plan_file::Cut).
//
// A plan of 8 x 96 instructions takes 240 kB, and a pp_rank needs an eighth of it. A straggler may
// change the plans of 5,000 nodes at once, so whole plan files would be too much data. If a cut
// lacks a rank's pp_rank, this rank waits for another file. A cut is one line of JSON, so that it
// fits into an event.
//
// Keeps recently used cuts. Thread safe.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace perseus::server {

class PlanCuts {
 public:
  explicit PlanCuts(store::Store& store) : store_(store) {}

  // Returns null if the plan does not exist. Fails (kInput) for pp_ranks that the plan does not
  // have.
  Result<std::shared_ptr<const std::string>> Get(const std::string& plan,
                                                 const std::set<int>& ranks);

 private:
  static constexpr std::size_t kMostBytes = 64U << 20U;
  using Key = std::pair<std::string, std::set<int>>;
  struct Kept {
    std::shared_ptr<const std::string> text;
    std::list<const Key*>::iterator use;
  };
  using Plan = std::shared_ptr<const plan_file::PlanFile>;
  // Returns null if the plan does not exist.
  Result<Plan> Read(const std::string& id);
  std::shared_ptr<const std::string> Find(const Key& key);
  void Keep(Key key, std::shared_ptr<const std::string> text);

  store::Store& store_;
  Mutex mutex_;
  std::map<Key, Kept> kept_ PERSEUS_GUARDED_BY(mutex_);
  // Pointers to the keys of kept_. The most recently used key is first.
  std::list<const Key*> uses_ PERSEUS_GUARDED_BY(mutex_);
  std::size_t bytes_ PERSEUS_GUARDED_BY(mutex_) = 0;
  // The whole plans that were read last, by id. Nodes with other pp_ranks will need cuts of the
  // same plans.
  static constexpr std::size_t kMostRead = 4;
  std::deque<std::pair<std::string, Plan>> read_ PERSEUS_GUARDED_BY(mutex_);
};

}  // namespace perseus::server
