// A node's half of the control plane (docs/server.md, "Nodes"): between job directories, whose
// ranks it never talks to, and a server, which may be away at any time.
//
//   rank logs ──► RankFollower ──► reports ──► server
//   assignment.json ◄── AssignmentSync ◄── events ◄── server
//
// It fails open. Without the server, ranks go on with the assignment that lie in their directory;
// when this process ends, they stay there, too.
//
// What comes and goes is passed in, so that tests need no network and no time: events through Hear,
// requests through a function, the time through Turn. run_node.h has the threads.
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
  std::string name;                                   // As the server is to call it.
  std::filesystem::path jobs_directory;               // Whose directories are watched; empty: none.
  std::map<std::filesystem::path, std::string> jobs;  // Others: the job's key, by directory.
  // Of this process: by it the server tells it from others of that name.
  std::string instance = {};
};

class Node {
 public:
  Node(NodeOptions options, Uplink::Send send, spdlog::logger& log);

  // An event of the server's.
  void Receive(const http::Event& event);
  // Another process is this node, says the server: nothing is reported until it takes the ranks
  // again, which it is asked as ever.
  void LoseName();
  // Looks at everything and does what is due; often, since a step's report is wanted 0.2 s after
  // it.
  void Turn(Nanoseconds now);
  // "j-0f…:7 j-41…:0": what of each job's assignment is here; 0: not all that its ranks need.
  std::string LastEventId() const;

 private:
  struct Job {
    Job(const std::filesystem::path& directory, std::string its_key)
        : key(std::move(its_key)), ranks(directory), assignment(directory) {}

    std::string key;
    std::string id;  // The server's; empty until it says it.
    RankFollower ranks;
    AssignmentSync assignment;
    bool is_attached = false;
    bool restarted = false;  // Its steps, since the server heard of its ranks.
    // Says the server; until ranks begin anew, or it takes them for a job of that key again.
    bool has_ended = false;
    bool is_unknown = false;      // To the server: it has ended, or is on another node now.
    bool has_run = false;         // A step, since the server said so, or was asked last.
    bool is_second = false;       // Another directory has the key.
    Nanoseconds last_active = 0;  // When its ranks came, or ended a step.
    Nanoseconds next_attach = 0;
    Nanoseconds next_fetch = 0;
    Nanoseconds next_write = 0;
    std::vector<protocol::StepReport> unsent;
    protocol::JobReport reported;  // Without steps: what the server knows of this node.
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
  std::map<std::filesystem::path, Job> jobs_;             // By directory.
  std::map<std::string, std::filesystem::path> holders_;  // Whose ranks the server has; by key.
  Nanoseconds next_search_ = 0;
  Nanoseconds next_report_ = 0;  // Not before.
  Nanoseconds report_by_ = 0;    // Even if there is nothing new.
};

}  // namespace perseus::node
