// The node daemon (docs/server.md, "Nodes"). It connects job directories with a server, which may
// be unreachable at any time. It does not communicate with the ranks directly.
//
//   rank logs ──► RankFollower ──► reports ──► server
//   assignment.json ◄── AssignmentSync ◄── events ◄── server
//
// The daemon fails open. If the server is unreachable, ranks continue with the assignment in their
// directory. When this process ends, the assignment stays in the directory.
//
// The caller passes in events (Receive), a function that sends requests, and the time (Turn). So
// tests need no network and never wait. The threads are in run_node.h.
//
// Not thread safe.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/node/assignment_sync.h"
#include "perseus/cluster/node/job_lifecycle.h"
#include "perseus/cluster/node/own_directory.h"
#include "perseus/cluster/node/rank_follower.h"
#include "perseus/cluster/node/uplink.h"

namespace perseus::node {

inline constexpr const char* kAssignmentsDirectory = "/run/perseus/node";

struct NodeOptions {
  std::string name;  // The name of this node for the server.
  // A directory that contains job directories. Empty: no such directory.
  std::filesystem::path jobs_directory;
  // Further job directories, each with the key of its job.
  std::map<std::filesystem::path, std::string> jobs;
  // Distinguishes this process from other processes with the same name.
  std::string instance = {};
  // The directory for the assignments of jobs of other users.
  std::filesystem::path assignments_directory = kAssignmentsDirectory;
  // If `join_token_file` is set, the node gets its own token with this join token. If
  // `munge_server` is set, the node gets its own token with a munge credential for this server. The
  // node keeps its own token in `own_token_file`.
  std::filesystem::path join_token_file = {};
  std::string munge_server = {};
  std::string munge_socket = {};  // Empty: the default of the system.
  std::filesystem::path own_token_file = {};
};

class Node {
 public:
  Node(NodeOptions options, Uplink::Send send, spdlog::logger& log);

  // An event from the server.
  void Receive(const http::Event& event);
  // Handles the server's report that another process has the name of this node. The node continues
  // to request the attachment of its ranks, and sends no reports until the server accepts them.
  void LoseName();
  // Reads new data, writes assignments and sends reports. Call it often: a report should reach the
  // server within 0.2 s of the end of its step.
  void Turn(Nanoseconds now);
  // Returns the assignment version of each job on this node: "j-0f…:7 j-41…:0". 0: the server has
  // to send the assignment, because a plan for a rank on this node is missing.
  std::string LastEventId() const;

 private:
  struct Job {
    Job(const protocol::AssignmentPlaces& its_places, const DirectoryId& its_id,
        std::string its_key)
        : key(std::move(its_key)),
          places(its_places),
          directory_id(its_id),
          ranks(its_places.job),
          assignment(its_places) {}

    std::string key;
    protocol::AssignmentPlaces places;
    DirectoryId directory_id;
    std::string id;  // The server's id; empty until the server names it.
    RankFollower ranks;
    AssignmentSync assignment;
    JobLifecycle lifecycle;
    // Whether another directory on this node has the same key. Then this directory gets no plans.
    // This flag is not a state of the lifecycle, because it depends on the other directory, not on
    // the server.
    bool is_second = false;
    // Whether the server refused the ranks because they belong to another user than the job. Then
    // another directory with the same key goes first.
    bool is_of_other_user = false;
    bool is_registered = false;   // The server had the job before its ranks ran.
    Nanoseconds last_active = 0;  // When ranks of the job appeared or ended a step.
    Nanoseconds next_check = 0;
    Nanoseconds next_attach = 0;
    Nanoseconds next_fetch = 0;
    Nanoseconds next_write = 0;
    std::vector<protocol::StepReport> unsent;
    protocol::JobReport reported;  // The last report that reached the server, without its steps.
  };

  void TakeAssignment(Job& job, const protocol::AssignmentEvent& assignment);
  void TakeEnd(const std::filesystem::path& directory, Job& job, const protocol::EndedEvent& ended);
  void FindJobs(Nanoseconds now);
  void AddJob(const std::filesystem::path& directory, const std::string& key);
  void ReadJob(const std::filesystem::path& directory, Job& job, Nanoseconds now);
  void KeepReports(const std::filesystem::path& directory, Job& job,
                   const std::vector<protocol::StepReport>& reports);
  void CheckRegistered(Job& job, Nanoseconds now);
  void Attach(const std::filesystem::path& directory, Job& job, Nanoseconds now);
  bool TakeKey(const std::filesystem::path& directory, const Job& job);
  void TakeAcceptance(Job& job, const http::Response& answer);
  void TakeRefusal(const std::filesystem::path& directory, Job& job, const http::Response& answer);
  void TakeId(Job& job, const std::string& id);
  void Detach(const Job& job, Nanoseconds now);
  void DetachEnded(Job& job, Nanoseconds now);
  static void StoreFiles(Job& job, const protocol::AssignmentEvent& assignment);
  void FetchPlans(Job& job, Nanoseconds now);
  bool FetchPlan(Job& job, const std::string& id, Nanoseconds now);
  void WriteAssignment(Job& job, Nanoseconds now);
  void Report(Nanoseconds now);
  void TakeAnswer(std::span<const protocol::JobReport> reports, const http::Response& response,
                  Nanoseconds now);
  protocol::JobReport ReportOf(const Job& job) const;
  std::string JobTarget(const Job& job) const;

  NodeOptions options_;
  Uplink uplink_;
  spdlog::logger& log_;
  std::map<std::filesystem::path, Job> jobs_;  // The jobs by directory.
  // The directory whose ranks are reported to the server, by key.
  std::map<std::string, std::filesystem::path> holders_;
  bool sends_running_ = false;  // Whether the server takes JobReport::running.
  Nanoseconds next_search_ = 0;
  Nanoseconds next_report_ = 0;  // The earliest time of the next report.
  Nanoseconds report_by_ = 0;    // The latest time, even if there is nothing new.
};

}  // namespace perseus::node
