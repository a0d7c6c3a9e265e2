// Keeps the newest assignment from the server in the job directory, or in the node's own place if
// the job directory belongs to another user (assignment_places.h). "The directory" below means both
// places for reading, and the one in which the node writes for writing.
//
// AssignmentSync repeatedly compares the wanted assignment with the assignment in the directory.
// Other programs may change the directory: tune or verify may use it for a while, and the node
// daemon may restart. In every case, AssignmentSync writes the wanted assignment as soon as it can.
// Each assignment in the directory names the server's job and version that it came from
// (Assignment::server), so AssignmentSync needs no other stored state. `perseus verify` keeps this
// origin when it restores an assignment.
//
// A rank accepts only a higher version than the version that it follows. And somebody may delete
// the file or replace it with an older file. So each version that AssignmentSync writes is higher
// than every version that was in the directory or that a rank follows.
//
// AssignmentSync deletes plan files that are no longer needed, but only files from the server.
//
// Not thread safe.
#pragma once

#include <sys/stat.h>

#include <array>
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
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"

namespace perseus::node {

// ---- Functions without side effects ----

// Returns the path of a plan in the job directory: "plans/p-0123456789abcdef.json".
std::string PlanPath(std::string_view id);
// Returns the assignment for the ranks, which begins at the step in the event.
protocol::Assignment AssignmentOf(const protocol::AssignmentEvent& assignment);
// Returns the first step of an assignment that the server wants to begin at step `wanted`. The
// result is later than `wanted` if a rank cannot read the assignment before step `wanted`.
std::int64_t FromStep(std::int64_t wanted, const JobProgress& progress);

// ---- One job directory ----

class AssignmentSync {
 public:
  // Without places.node, the node writes into the job directory.
  explicit AssignmentSync(protocol::AssignmentPlaces places);

  // Reads the assignment in the directory. Fails if the file cannot be read. Then a later call
  // reads the file again after it has changed. If the file is deleted, the next Write creates it
  // again.
  Result<void> Look();

  // Sets the wanted assignment. Ignores a version that is older than the current one. The same
  // version may come again with the plans of more pipelines, for ranks that started later. Deletes
  // plan files that only the previous wanted assignment needed.
  void Want(const protocol::AssignmentEvent& assignment);
  // Handles the end of the job: the next Write withdraws the server's assignment.
  void WantNothing();
  // Handles a restart of the ranks: the next Write makes the assignment begin at step 0.
  void Restart() { has_restarted_ = true; }
  // Sets the pp_ranks on this node, by dp_rank. A plan file must contain the instructions of these
  // pp_ranks. A rank may start after the assignment was written with a plan file that lacks the
  // instructions of this rank. Then the assignment is written again.
  void SetRanks(std::map<int, std::set<int>> ranks);

  // Records that a rank follows this version of assignment.json. If the file has a lower version,
  // the next Write uses a version that is higher than `version`.
  void SawVersion(std::int64_t version);

  // Ids of the plans that the wanted assignment needs and the directory does not have.
  std::set<std::string> MissingPlans() const;
  // Ids of missing plans that the server is likely to assign next.
  std::set<std::string> MissingUpcoming() const;
  // Whether the wanted assignment names a plan for each pipeline with ranks on this node.
  bool NamesPlansOfAll() const;
  // Whether the last event names this plan: for a pipeline, or as upcoming.
  bool Names(const std::string& id) const;
  // Whether the directory has the plan, with all instructions of the ranks on this node that will
  // follow it.
  bool HasPlan(const std::string& id) const;
  // Writes the plan file. Refuses (kInput) a text that is not a plan. The plan may lack
  // instructions of ranks that are not on this node. Fails (kSystem) if all plan files of the
  // server would take more than kMostBytesOfPlans.
  static constexpr std::uint64_t kMostBytesOfPlans = 256U << 20U;
  Result<void> StorePlan(const std::string& id, const std::string& text);

  // Whether Write has anything to do.
  bool HasToWrite() const;
  // Writes the wanted assignment. Fails (kSystem) while another coordinator holds the job, or if
  // the directory cannot be written. Then the caller tries again later.
  Result<void> Write(const JobProgress& progress);

  // The server's job and version of the lasting assignment in the directory. A temporary assignment
  // does not change them.
  std::optional<protocol::ServerOrigin> in_force() const;
  // Returns the server's version of the assignment that had `version` in assignment.json. Returns 0
  // if the assignment is not from the server, or if its origin is unknown.
  std::int64_t ServerVersionOf(std::int64_t version) const;
  // The server's job and version of the wanted assignment. If no assignment is wanted, those of the
  // active assignment.
  std::optional<protocol::ServerOrigin> newest() const;

 private:
  void Remember(const std::optional<protocol::Assignment>& assignment);
  bool IsWantedInForce() const;
  // Whether ranks may ignore the file because they follow a higher version.
  bool IsBehind() const { return version_ < highest_version_; }
  bool HasPlansWanted() const;
  std::set<int> RanksThatFollow(const std::string& id) const;
  std::map<std::string, std::uint64_t> ServerPlans() const;
  void DeleteOldPlans();

  // The directory in which the node writes.
  const std::filesystem::path& place() const {
    return places_.node.empty() ? places_.job : places_.node;
  }

  protocol::AssignmentPlaces places_;
  // The assignment files in both places, as they were when they were last read.
  std::array<std::optional<struct stat>, 2> seen_;
  std::int64_t version_ = 0;  // The version in assignment.json. 0: the file does not exist.
  // The highest version that was in assignment.json or that a rank followed.
  std::int64_t highest_version_ = 0;
  std::optional<protocol::Assignment> lasting_;  // The lasting assignment in the directory.
  // The assignment from the server, with the server's from_step.
  std::optional<protocol::Assignment> wanted_;
  std::vector<std::string> upcoming_;  // Ids of plans, from the same event.
  // Ids of plans that were in force before the last Write. A rank may be about to read them.
  std::set<std::string> previous_plans_;
  bool is_nothing_wanted_ = false;
  bool has_restarted_ = false;
  // Whether an active plan file lacks the instructions of a rank that started later.
  bool were_plans_short_ = false;
  std::map<int, std::set<int>> ranks_;
  // By plan id: the ranks whose instructions are in that plan file. nullopt: the file has all
  // ranks. The map contains only plan files that this process has read or written.
  mutable std::map<std::string, std::optional<std::set<int>>> cut_for_;
  // The key is a version of assignment.json.
  std::map<std::int64_t, protocol::ServerOrigin> origins_;
};

}  // namespace perseus::node
