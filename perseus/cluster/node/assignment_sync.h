// Keeps the newest assignment from the server in the job directory.
//
// It compares what the server wants with what the directory has, again and again. Whatever happens
// to the directory (a tune or verify uses it for a while, the node daemon restarts), it writes the
// last wanted assignment as soon as it can. The directory itself says which of the server's
// versions it has (Assignment::server), so nothing else has to be stored. The assignments that a
// `perseus verify` puts back still say so.
//
// It deletes plan files that it no longer needs, but only those that the server named.
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
// The assignment for the ranks, from the step that the server names.
protocol::Assignment AssignmentOf(const protocol::AssignmentEvent& assignment);
// The first step that an assignment can have which should hold from `wanted` on: every rank has to
// read it before that step.
std::int64_t FromStep(std::int64_t wanted, const JobProgress& progress);

// ---- A directory ----

class AssignmentSync {
 public:
  explicit AssignmentSync(std::filesystem::path job_directory);

  // Reads the assignment in the directory. Fails if it cannot be read; then it is read again once
  // it changes.
  Result<void> Look();

  // Ignores an older version than the wanted one. The same version may come again with the plans of
  // more pipelines, for ranks that came later.
  void Want(const protocol::AssignmentEvent& assignment);
  // The job has ended: the server's assignment is taken out of force.
  void WantNothing();
  // The ranks restarted: an assignment that begins at a later step holds at once.
  void Restart() { has_restarted_ = true; }
  // The pp_ranks on this node, by dp_rank. A plan file needs their instructions. If a rank comes
  // after the assignment was written with a file that was cut for the others, it is written again.
  void SetRanks(std::map<int, std::set<int>> ranks);

  // Ids of the plans that the wanted assignment needs and the directory does not have.
  std::set<std::string> MissingPlans() const;
  // Ids of missing plans that the server is likely to assign next.
  std::set<std::string> MissingUpcoming() const;
  // Whether the wanted assignment names a plan for each pipeline with ranks here.
  bool NamesPlansOfAll() const;
  // Whether the plan is there, with all instructions of the ranks here that will follow it.
  bool HasPlan(const std::string& id) const;
  // Refuses (kInput) a text that is not a plan. It may lack instructions of ranks that are not
  // here.
  Result<void> KeepPlan(const std::string& id, const std::string& text);

  // Whether Give has anything to do.
  bool HasToWrite() const;
  // Writes the wanted assignment. Fails (kSystem) while another coordinator holds the job, or if
  // the directory cannot be written. Then try again later.
  Result<void> Write(const JobProgress& progress);

  // The server's version in the directory, even if a temporary assignment hides it.
  std::optional<protocol::ServerOrigin> in_force() const;
  // The server's version for a version of assignment.json; 0: none, or no longer known.
  std::int64_t ServerVersionOf(std::int64_t version) const;
  // The wanted version, or else the one in force.
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
