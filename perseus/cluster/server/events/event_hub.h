// The event streams of the nodes that are connected to this replica. Sends each node the newest
// assignments of its jobs.
//
//   notice "assignment j-1"  ──► read the assignment of j-1 once ──► all streams of nodes with j-1
//   a node opens a stream    ──► read its jobs ──► the same for each job, for this node
//
// At most one read runs for each job and for each node. A request during a read causes another read
// after this read. So thousands of nodes that connect at once share few reads. No node receives an
// assignment that is older than its last assignment. No node misses an assignment that was made
// while its jobs were read.
//
// A stream is a view of the store: for each stream, the hub remembers the version of each job that
// it has sent. It sends only newer versions. The id of an event contains these versions ("j-1:7
// j-2:4"). A node may connect again, to this replica or to another replica. Because of the event
// id, it continues at its position, even if notices were lost.
//
// Reads run on the pool. Everything else runs on the thread of the loop. Notices may come on any
// thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "perseus/cluster/http/admission.h"
#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/events/plan_cuts.h"
#include "perseus/cluster/server/identity/identity.h"
#include "perseus/cluster/store/store.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {

class EventHub : public std::enable_shared_from_this<EventHub> {
 public:
  using Failed = std::function<void(const Error&)>;
  EventHub(boost::asio::io_context& loop, boost::asio::thread_pool& pool, store::Store& store,
           PlanCuts& cuts, Failed failed)
      : loop_(loop), pool_(pool), store_(store), cuts_(cuts), failed_(std::move(failed)) {}

  // Opens the stream of a node whose name the process has claimed (Store::ClaimNodes). Closes an
  // older stream of this node. At the end of the stream, the name is released. `last_event_id` is
  // the text that the client sent. A malformed `last_event_id` is ignored. Holds `ticket` while the
  // stream is open. Call it on the loop.
  void Open(const store::NodeClaim& claim, std::string_view last_event_id, Identity identity,
            std::shared_ptr<http::Stream> stream, http::ConnectionCounter::Ticket ticket = nullptr);
  // Closes the streams whose callers are no longer valid, and returns their nodes. Call it on the
  // loop.
  std::vector<std::string> CloseInvalid(const std::function<bool(const Identity&)>& is_valid);
  // Returns the claims of the open streams, which have to be renewed. Call it on the loop.
  std::vector<store::NodeClaim> Claims() const;
  // Takes the result of Store::ClaimNodes. Closes the streams of the nodes in `refused`, because
  // other processes have these names. Releases the names of streams that have closed in the
  // meantime. Call it on any thread.
  void UpdateClaims(std::vector<store::NodeClaim> claims, std::vector<std::string> refused);
  // Call it on the loop, or after the loop has ended.
  void CloseAll();
  // Call it on any thread.
  void Receive(const store::Notice& notice);

  // The number of events that were sent. Call it on the loop.
  std::int64_t events() const { return events_; }

 private:
  struct NodeJob {
    telemetry::NodeRanks ranks;
    std::int64_t sent = 0;  // The version that was sent. -1: the end of the job.
  };
  struct Node {
    std::shared_ptr<http::Stream> stream;
    std::string instance;
    http::ConnectionCounter::Ticket ticket;  // Held while the stream is open.
    Identity identity;                       // The caller that opened the stream.
    std::map<std::string, NodeJob> jobs;     // The jobs of this node, by job id.
    // The versions in the last event id, for jobs that have not been read yet.
    std::map<std::string, std::int64_t> positions;
  };
  // The state of a job, as nodes receive it.
  struct JobState {
    std::string job;
    std::string key;
    bool has_ended = false;
    std::int64_t version = 0;
    store::PlannedAssignment assignment;
    // The texts of plans, cut for ranks. Null if a text is too large for an event.
    std::map<std::pair<std::string, std::set<int>>, std::shared_ptr<const std::string>> files;
  };
  using Shapes = std::set<telemetry::NodeRanks>;
  struct NodeState {
    std::map<std::string, telemetry::NodeRanks> jobs;    // The jobs of the node.
    std::vector<std::shared_ptr<const JobState>> ended;  // Earlier jobs of the node.
  };
  // The running read of a job.
  struct Reading {
    bool is_under_way = false;
    std::set<std::string> next;  // Nodes for the next read.
  };

  void StreamClosed(const std::string& node, const http::Stream* stream);
  void Leave(const std::string& node, const std::string& job);
  void Release(const store::NodeClaim& claim);
  void RequestNodeRead(const std::string& node);
  void StartNodeRead(const std::string& node);
  Result<NodeState> ReadNode(const std::string& node, const std::set<std::string>& known);
  void Take(const std::string& node, const NodeState& state);
  void SendJob(const std::string& job, const std::set<std::string>& nodes);
  void StartReading(const std::string& job);
  void SendJobState(const std::string& job, const std::set<std::string>& nodes,
                    const JobState* state);
  Result<std::shared_ptr<const JobState>> ReadJobState(const std::string& job,
                                                       const Shapes& shapes);
  void Send(const std::string& name, const JobState& state);
  void SendAssignment(Node& node, const NodeJob& job, const JobState& state);
  static std::string Positions(const Node& node);

  boost::asio::io_context& loop_;
  boost::asio::thread_pool& pool_;
  store::Store& store_;
  PlanCuts& cuts_;
  Failed failed_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::set<std::string>> nodes_of_job_;
  std::map<std::string, Reading> readings_;  // The running read of each job, by job id.
  enum class Afterwards { kNothing, kReadAgain };
  std::map<std::string, Afterwards> node_reads_;  // The running read of each node, by name.
  std::int64_t events_ = 0;
};

}  // namespace perseus::server
