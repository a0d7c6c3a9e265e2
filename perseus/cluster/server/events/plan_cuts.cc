#include "perseus/cluster/server/events/plan_cuts.h"

#include <algorithm>

namespace perseus::server {
namespace {

// Returns the memory that a cut takes. Each rank of the key is one node of a tree in memory.
std::size_t SizeOf(const std::pair<std::string, std::set<int>>& key, const std::string& text) {
  constexpr std::size_t kTreeNodeBytes = 48;
  return text.size() + key.first.size() + kTreeNodeBytes * key.second.size();
}

}  // namespace

Result<std::shared_ptr<const std::string>> PlanCuts::Get(const std::string& plan,
                                                         const std::set<int>& ranks) {
  Key key{plan, ranks};
  if (auto text = Find(key)) return text;
  PERSEUS_ASSIGN_OR_RETURN(const auto whole, Read(plan));
  if (!whole) return std::shared_ptr<const std::string>();
  PERSEUS_ASSIGN_OR_RETURN(const auto cut, plan_file::Cut(*whole, ranks));
  auto text = std::make_shared<const std::string>(
      plan_file::FormatPlan(cut, plan_file::PlanText::kOneLine));
  Keep(std::move(key), text);
  return text;
}

Result<std::shared_ptr<const plan_file::PlanFile>> PlanCuts::Read(const std::string& id) {
  {
    const MutexLock lock(mutex_);
    const auto known = std::ranges::find(read_, id, &std::pair<std::string, Plan>::first);
    if (known != read_.end()) return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto record, store_.FindPlanById(id));
  if (!record) return nullptr;
  auto file = plan_file::ParsePlan(record->body, id);
  if (!file) {
    return FailAs(ErrorKind::kSystem, "a plan in the database cannot be read: {}",
                  file.error().Message());
  }
  auto plan = std::make_shared<const plan_file::PlanFile>(*std::move(file));
  const MutexLock lock(mutex_);
  read_.emplace_back(id, plan);
  if (read_.size() > kMostRead) read_.pop_front();
  return plan;
}

std::shared_ptr<const std::string> PlanCuts::Find(const Key& key) {
  const MutexLock lock(mutex_);
  const auto found = kept_.find(key);
  if (found == kept_.end()) return nullptr;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  return found->second.text;
}

void PlanCuts::Keep(Key key, std::shared_ptr<const std::string> text) {
  const MutexLock lock(mutex_);
  if (kept_.contains(key)) return;
  const auto kept = kept_.emplace(std::move(key), Kept{std::move(text), uses_.end()}).first;
  bytes_ += SizeOf(kept->first, *kept->second.text);
  uses_.push_front(&kept->first);
  kept->second.use = uses_.begin();
  while (bytes_ > kMostBytes && uses_.size() > 1) {
    const auto oldest = kept_.find(*uses_.back());
    bytes_ -= SizeOf(oldest->first, *oldest->second.text);
    kept_.erase(oldest);
    uses_.pop_back();
  }
}

}  // namespace perseus::server
