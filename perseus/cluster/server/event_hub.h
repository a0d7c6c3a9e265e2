// What nodes are told, and when: the streams of this replica, kept in step with the store.
//
//   notice "assignment j-1" ──► read j-1's newest assignment once ──► every open stream of a node
//   with j-1 node opens a stream ──► look up its jobs ──► as above, for that node
//
// Of each job one reading is under way at a time, and of each node one looking up; what comes in
// between is done after it. So thousands of nodes that come at once share few readings, and nobody
// is told of a reading that is older than what he was told before, or misses assignment that came
// while he was looked up.
//
// A stream is a view of the store: the hub remembers which version of each job's assignment it has
// sent to each stream, and sends what is newer. The event's id is that memory ("j-1:7 j-2:4"), so a
// node that comes back, here or elsewhere, goes on where it was; so does one whose notices were
// lost.
//
// All on the loop's thread but for the reading, which the pool does. Notices may come from any.
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

#include "perseus/cluster/http/server.h"
#include "perseus/cluster/server/plan_cuts.h"
#include "perseus/cluster/server/planning.h"
#include "perseus/cluster/store/store.h"

namespace perseus::server {

// The ranks of a node along each pipeline: {pipeline: {rank…}}.
using NodeRanks = std::map<int, std::set<int>>;
Result<NodeRanks> ParseNodeRanks(std::string_view json);

// A process that has not been heard for that long has its node's name no more.
constexpr store::Milliseconds kNodeIsSilentAfter = 15'000;

class EventHub : public std::enable_shared_from_this<EventHub> {
 public:
  using Failed = std::function<void(const Error&)>;
  EventHub(boost::asio::io_context& loop, boost::asio::thread_pool& pool, store::Store& store,
           PlanCuts& cuts, Failed failed)
      : loop_(loop), pool_(pool), store_(store), cuts_(cuts), failed_(std::move(failed)) {}

  // The stream of that node, whose name the process has (Store::ClaimNodes), from now on; one that
  // it had before is closed. When it ends, the name is free. `last_event_id`: as the client sent
  // it; what is none counts as none. On the loop.
  void Open(const store::NodeClaim& claim, std::string_view last_event_id,
            std::shared_ptr<http::Stream> stream);
  // Of the streams that are open: to be made anew before they count as silent. On the loop.
  std::vector<store::NodeClaim> Claims() const;
  // What came of that (Store::ClaimNodes): others have the names of `refused`, whose streams are
  // closed. Of streams that closed since, the name is free again. On any thread.
  void Claimed(std::vector<store::NodeClaim> claims, std::vector<std::string> refused);
  // On the loop, or when it has ended.
  void CloseAll();
  // On any thread.
  void Heard(const store::Notice& notice);

  int streams() const { return static_cast<int>(nodes_.size()); }  // On the loop.
  std::int64_t events() const { return events_; }

 private:
  struct NodeJob {
    NodeRanks ranks;
    std::int64_t sent = 0;  // Version; -1: that it ended.
  };
  struct Node {
    std::shared_ptr<http::Stream> stream;
    std::string instance;
    std::map<std::string, NodeJob> jobs;  // By id.
    // What was sent according to the last event id, of jobs that were not looked up yet.
    std::map<std::string, std::int64_t> positions;
  };
  // What is to be told of one job.
  struct News {
    std::string job;
    std::string key;
    bool has_ended = false;
    std::int64_t version = 0;
    PlannedAssignment assignment;
    // Texts of plans, cut for ranks; null where they are too large for an event.
    std::map<std::pair<std::string, std::set<int>>, std::shared_ptr<const std::string>> files;
  };
  using Shapes = std::set<NodeRanks>;
  struct Looked {
    std::map<std::string, NodeRanks> jobs;           // That the node has.
    std::vector<std::shared_ptr<const News>> ended;  // That it had.
  };
  // Of a job.
  struct Reading {
    bool is_under_way = false;
    std::set<std::string> next;  // Nodes to tell of the next one.
  };

  void HasClosed(const std::string& node, const http::Stream* stream);
  void Leave(const std::string& node, const std::string& job);
  void Release(const store::NodeClaim& claim);
  void LookUpNode(const std::string& node);
  void StartLookUp(const std::string& node);
  Result<Looked> ReadNode(const std::string& node, const std::set<std::string>& known);
  void Take(const std::string& node, const Looked& looked);
  void TellJob(const std::string& job, const std::set<std::string>& nodes);
  void StartReading(const std::string& job);
  void TakeNews(const std::string& job, const std::set<std::string>& nodes, const News* news);
  Result<std::shared_ptr<const News>> ReadNews(const std::string& job, const Shapes& shapes);
  void Tell(const std::string& name, const News& news);
  void TellAssignment(Node& node, const NodeJob& job, const News& news);
  static std::string Positions(const Node& node);

  boost::asio::io_context& loop_;
  boost::asio::thread_pool& pool_;
  store::Store& store_;
  PlanCuts& cuts_;
  Failed failed_;
  std::map<std::string, Node> nodes_;
  std::map<std::string, std::set<std::string>> nodes_of_job_;
  std::map<std::string, Reading> readings_;  // By job; those under way.
  enum class Afterwards { kNothing, kReadAgain };
  std::map<std::string, Afterwards> look_ups_;  // By node; those under way.
  std::int64_t events_ = 0;
};

}  // namespace perseus::server
