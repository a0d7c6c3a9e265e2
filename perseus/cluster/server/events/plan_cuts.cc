#include "perseus/cluster/server/events/plan_cuts.h"
#include "perseus/base/json_text.h"

#include <nlohmann/json.hpp>

namespace perseus::server {

using nlohmann::ordered_json;

namespace {

// The memory that a cut takes. Each rank of the key is a node of a tree.
std::size_t SizeOf(const std::pair<std::string, std::set<int>>& key, const std::string& text) {
  constexpr std::size_t kTreeNodeBytes = 48;
  return text.size() + key.first.size() + kTreeNodeBytes * key.second.size();
}

}  // namespace

Result<std::string> CutPlan(std::string_view plan, const std::set<int>& ranks) {
  try {
    ordered_json json = ordered_json::parse(plan);
    std::set<int> unknown = ranks;
    for (ordered_json& rank : json.at("pp_ranks")) {
      if (unknown.erase(rank.at("pp_rank").get<int>()) > 0) continue;
      std::set<int> stages;
      auto kept = ordered_json::array();
      for (ordered_json& instruction : rank.at("instructions")) {
        const auto stage = instruction.find("stage");
        if (stage == instruction.end() || !stages.insert(stage->get<int>()).second) continue;
        kept.push_back(std::move(instruction));
      }
      rank["cut"] = true;
      rank["instructions"] = std::move(kept);
    }
    if (unknown.empty()) return JsonText(json);
    return Fail("the plan has no pp_rank {} (it has {} pp_ranks, numbered from 0)",
                *unknown.begin(), json.at("pp_ranks").size());
  } catch (const ordered_json::exception& error) {
    return FailAs(ErrorKind::kSystem, "a plan in the database cannot be read: {}", error.what());
  }
}

Result<std::shared_ptr<const std::string>> PlanCuts::Get(const std::string& plan,
                                                         const std::set<int>& ranks) {
  Key key{plan, ranks};
  if (auto text = Find(key)) return text;
  PERSEUS_ASSIGN_OR_RETURN(auto record, store_.FindPlanById(plan));
  if (!record) return std::shared_ptr<const std::string>();
  PERSEUS_ASSIGN_OR_RETURN(auto cut, CutPlan(record->body, ranks));
  auto text = std::make_shared<const std::string>(std::move(cut));
  Keep(std::move(key), text);
  return text;
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
