// The node daemon (docs/server.md, "Nodes"). It connects job directories with a server, which may
// be away at any time. It never talks to the ranks themselves.
//
//   rank logs ──► RankFollower ──► reports ──► server
//   assignment.json ◄── AssignmentSync ◄── events ◄── server
//
// It fails open. Without the server, ranks continue with the assignment in their directory. When
// this process ends, the assignment stays there.
//
// The caller passes everything in, so that tests need no network and no waiting: events through
// Receive, requests through a function, the time through Turn. run_node.h has the threads.
//
// Not thread safe.
#pragma once

#include <spdlog/logger.h>

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/base/units.h"
#include "perseus/cluster/http/message.h"
#include "perseus/cluster/node/assignment_sync.h"
#include "perseus/cluster/node/rank_follower.h"
#include "perseus/cluster/node/uplink.h"

namespace perseus::node {

struct NodeOptions {
  std::string name;                      // The name of this node for the server.
  std::filesystem::path jobs_directory;  // Has the job directories; empty: none.
  std::map<std::filesystem::path, std::string>
      jobs;  // Further job directories, with the job's key.
  // Identifies this process, if several have the same name.
  std::string instance = {};
};

class Node {
 public:
  Node(NodeOptions options, Uplink::Send send, spdlog::logger& log);

  // An event from the server.
  void Receive(const http::Event& event);
  // The server says that another process has this name. The node then reports nothing until the
  // server accepts its ranks again. It continues to attach them.
  void LoseName();
  // Reads everything new and does what is due. Call it often: a report should reach the server
  // within 0.2 s of the end of its step.
  void Turn(Nanoseconds now);
  // "j-0f…:7 j-41…:0": the version of each job that is here. 0: some plan for its ranks is missing.
  std::string LastEventId() const;

 private:
  struct Job {
    Job(const std::filesystem::path& directory, std::string its_key)
        : key(std::move(its_key)), ranks(directory), assignment(directory) {}

    std::string key;
    std::string id;  // The server's id; empty until the server names it.
    RankFollower ranks;
    AssignmentSync assignment;
    bool is_attached = false;
    bool restarted = false;  // Its ranks are new since the last attachment.
    // The server says so. Until ranks restart, or the server accepts them for a job with this key.
    bool has_ended = false;
    bool is_unknown =
        false;  // The server does not know its ranks here: the job ended, or is on another node.
    bool has_run = false;         // It ran a step since then, or since the last attachment.
    bool is_second = false;       // Another directory has the key.
    Nanoseconds last_active = 0;  // When its ranks appeared, or ended a step.
    Nanoseconds next_attach = 0;
    Nanoseconds next_fetch = 0;
    Nanoseconds next_write = 0;
    std::vector<protocol::StepReport> unsent;
    protocol::JobReport reported;  // Without steps: the last report that the server has.
  };

  void TakeAssignment(Job& job, const protocol::AssignmentEvent& assignment);
  void TakeEnd(const std::filesystem::path& directory, Job& job, const protocol::EndedEvent& ended);
  void FindJobs(Nanoseconds now);
  void LookAt(const std::filesystem::path& directory, Job& job, Nanoseconds now);
  void Attach(const std::filesystem::path& directory, Job& job, Nanoseconds now);
  bool TakeKey(const std::filesystem::path& directory, const Job& job);
  void TakeId(Job& job, const std::string& id);
  void Detach(const Job& job, Nanoseconds now);
  static void KeepFiles(Job& job, const protocol::AssignmentEvent& assignment);
  void FetchPlans(Job& job, Nanoseconds now);
  bool FetchPlan(Job& job, const std::string& id, Nanoseconds now);
  void WriteAssignment(Job& job, Nanoseconds now);
  void Report(Nanoseconds now);
  void TakeAnswer(const http::Response& response, Nanoseconds now);
  static protocol::JobReport ReportOf(const Job& job);
  std::string JobTarget(const Job& job) const;

  NodeOptions options_;
  Uplink uplink_;
  spdlog::logger& log_;
  std::map<std::filesystem::path, Job> jobs_;  // By directory.
  std::map<std::string, std::filesystem::path>
      holders_;  // Of the directory whose ranks the server has, by key.
  Nanoseconds next_search_ = 0;
  Nanoseconds next_report_ = 0;  // Not before.
  Nanoseconds report_by_ = 0;    // Even if there is nothing new.
};

}  // namespace perseus::node
