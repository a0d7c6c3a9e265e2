// Sees to it that what the server ordered last for a job lies in the job's directory.
//
// Level-triggered: whatever happens to the directory (a tune or verify that takes it for a while, a
// node process that is started anew), what was wanted last is given as soon as it can be. Where the
// directory stands is read from it: assignment say which of the server's they are
// (Assignment::server), so nothing else has to be kept. Those that a `perseus verify` puts back
// keep saying so.
//
// Plan files that are of no use any more are deleted, of those that the server named.
//
// Not thread safe.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cluster/node/rank_follower.h"
#include "perseus/runtime/protocol/assignment.h"
#include "perseus/runtime/protocol/node_messages.h"

namespace perseus::node {

// ---- Pure ----

// "plans/p-0123456789abcdef.json"
std::string PlanPath(std::string_view id);
// What ranks are to read; from the step that the server names.
protocol::Assignment AssignmentOf(const protocol::AssignmentEvent& assignment);
// From which step on assignment can be given that are to hold from `wanted` on: all ranks have to
// read them before their first step of these.
std::int64_t FromStep(std::int64_t wanted, const JobProgress& progress);

// ---- A directory ----

class AssignmentSync {
 public:
  explicit AssignmentSync(std::filesystem::path job_directory);

  // Reads what anybody ordered since. Fails for assignment that cannot be read (they are read again
  // once they change).
  Result<void> Look();

  // Passes over what is older than what is wanted already. The same version may come again with
  // plans of more pipelines, for ranks that came later.
  void Want(const protocol::AssignmentEvent& assignment);
  // The job has ended: what is in force of the server's is taken back.
  void WantNothing();
  // Assignment that are in force from a later step on hold at once.
  void Restart() { has_restarted_ = true; }
  // Those here, by pipeline: what a plan's file has to tell of. A rank may come after assignment
  // were given with a file that was cut for the others; they are then given once more.
  void SetRanks(std::map<int, std::set<int>> ranks);

  // Ids of plans that what is wanted needs and that are not in the directory.
  std::set<std::string> MissingPlans() const;
  // Of those likely to be wanted next.
  std::set<std::string> MissingUpcoming() const;
  // Whether what is wanted names one for each pipeline with ranks here.
  bool NamesPlansOfAll() const;
  // With all instructions of the ranks here that are to follow it.
  bool HasPlan(const std::string& id) const;
  // Refuses (kInput) what is no plan: ranks would go without. It may lack instructions of ranks
  // that are not here.
  Result<void> KeepPlan(const std::string& id, const std::string& text);

  // Whether Give has anything to do.
  bool HasToWrite() const;
  // Gives what is wanted. Fails (kSystem) while somebody else gives this job its assignment, or if
  // the directory cannot be written: to be tried again.
  Result<void> Write(const JobProgress& progress);

  // Of the server's assignment: what lies in the directory, whether hidden by temporary ones or
  // not.
  std::optional<protocol::ServerOrigin> in_force() const;
  // Of the server's, by the version of assignment.json; 0: none of its, or not known any more.
  std::int64_t ServerVersionOf(std::int64_t version) const;
  // Of assignment wanted or in force, whichever is newer.
  std::optional<protocol::ServerOrigin> newest() const;

 private:
  void Remember(const std::optional<protocol::Assignment>& assignment);
  bool IsWantedInForce() const;
  bool HasPlansWanted() const;
  std::set<int> RanksThatFollow(const std::string& id) const;
  void DeletePlansBut(const std::set<std::string>& kept);

  std::filesystem::path job_directory_;
  std::optional<struct stat> seen_;
  std::optional<protocol::Assignment> lasting_;  // In the directory.
  std::optional<protocol::Assignment> wanted_;   // Of the server; from_step as it named it.
  std::vector<std::string> upcoming_;  // Ids of plans, as the server named them with these.
  bool is_nothing_wanted_ = false;
  bool has_restarted_ = false;
  bool were_plans_short_ = false;  // Of those in force: some rank came later.
  std::map<int, std::set<int>> ranks_;
  // Of plans in the directory, as far as they were looked up: the ranks that a file was cut for;
  // nothing: it is whole.
  mutable std::map<std::string, std::optional<std::set<int>>> cut_for_;
  std::map<std::int64_t, protocol::ServerOrigin> origins_;  // By the version of assignment.json.
};

}  // namespace perseus::node
