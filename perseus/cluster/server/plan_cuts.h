// Plans cut down to what one node needs of them.
//
// A plan of 8 x 96 instructions is 240 kB, of which a rank needs an eighth; 5,000 nodes are told of
// a straggler at once. A cut keeps all instructions of the ranks asked for, and of any other rank
// the first of each of its stages, marked as cut: enough for ParsePlan, which wants to know where
// each stage lives. A rank that finds itself cut waits for a file that has it. One line of JSON, so
// that it fits into an event.
//
// Keeps what it made lately. Thread safe.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/mutex.h"
#include "perseus/base/result.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

class PlanCuts {
 public:
  explicit PlanCuts(store::Store& store) : store_(store) {}

  // Null if there is no such plan. kInput for ranks that it does not have.
  Result<std::shared_ptr<const std::string>> Get(const std::string& plan,
                                                 const std::set<int>& ranks);

 private:
  static constexpr std::size_t kMostBytes = 64U << 20U;
  using Key = std::pair<std::string, std::set<int>>;
  struct Kept {
    std::shared_ptr<const std::string> text;
    std::list<const Key*>::iterator use;
  };
  std::shared_ptr<const std::string> Find(const Key& key);
  void Keep(Key key, std::shared_ptr<const std::string> text);

  store::Store& store_;
  Mutex mutex_;
  std::map<Key, Kept> kept_ PERSEUS_GUARDED_BY(mutex_);
  // The latest first; of kept_, which holds their keys.
  std::list<const Key*> uses_ PERSEUS_GUARDED_BY(mutex_);
  std::size_t bytes_ PERSEUS_GUARDED_BY(mutex_) = 0;
};

// Of the text of a plan file. kInput for ranks that it does not have.
Result<std::string> CutPlan(std::string_view plan, const std::set<int>& ranks);

}  // namespace perseus::server
