#include "perseus/cluster/server/events/event_hub.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>
#include <vector>

#include "perseus/base/number.h"
#include "perseus/cluster/node_messages/node_messages.h"

namespace perseus::server {
namespace {

// The longest plan in an event. Nodes fetch longer plans themselves (GET /v1/plans/ID).
constexpr std::size_t kMaxInlineBytes = 128U << 10U;
constexpr std::int64_t kEnded = -1;  // Used in place of a version, for a job that has ended.

bool IsJobId(std::string_view text) {
  constexpr std::size_t kLength = 18;
  return text.size() == kLength && text.starts_with("j-") &&
         text.find_first_not_of("0123456789abcdef", 2) == std::string_view::npos;
}

// Parses "j-0f…:7 j-41…:-1". Ignores malformed text.
std::map<std::string, std::int64_t> ParsePositions(std::string_view text) {
  std::map<std::string, std::int64_t> positions;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const std::size_t colon = word.find(':');
    if (colon == std::string_view::npos) continue;
    const auto version = ParseNumber<std::int64_t>(word.substr(colon + 1));
    if (!version || *version < kEnded) continue;
    const std::string_view job = word.substr(0, colon);
    if (IsJobId(job)) positions[std::string(job)] = *version;
  }
  return positions;
}

// Returns the part of each plan that a node with these ranks needs.
std::map<std::string, std::set<int>> PlansFor(const store::PlannedAssignment& assignment,
                                              const telemetry::NodeRanks& node) {
  std::map<std::string, std::set<int>> plans;
  for (const auto& [pipeline, ranks] : node) {
    if (pipeline < static_cast<int>(assignment.pipelines.size())) {
      const auto& share = assignment.pipelines[static_cast<std::size_t>(pipeline)];
      plans[share.plan].insert(ranks.begin(), ranks.end());
    }
    for (const std::string& plan : assignment.upcoming)
      plans[plan].insert(ranks.begin(), ranks.end());
  }
  return plans;
}

}  // namespace

void EventHub::Open(const store::NodeClaim& claim, std::string_view last_event_id,
                    Identity identity, std::shared_ptr<http::Stream> stream,
                    http::ConnectionCounter::Ticket ticket) {
  const std::string& node = claim.node;
  Node& opened = nodes_[node];
  if (opened.stream) opened.stream->Close();
  for (const auto& [job, ignored] : opened.jobs) Leave(node, job);
  opened = Node{.stream = stream,
                .instance = claim.instance,
                .ticket = std::move(ticket),
                .identity = std::move(identity),
                .jobs = {},
                .positions = ParsePositions(last_event_id)};
  stream->OnClose([weak = weak_from_this(), node, raw = stream.get()] {
    if (const auto hub = weak.lock()) hub->StreamClosed(node, raw);
  });
  RequestNodeRead(node);
}

void EventHub::StreamClosed(const std::string& node, const http::Stream* stream) {
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.stream.get() != stream) return;
  for (const auto& [job, ignored] : found->second.jobs) Leave(node, job);
  const store::NodeClaim claim{.node = node, .instance = found->second.instance};
  nodes_.erase(found);
  Release(claim);
}

void EventHub::Leave(const std::string& node, const std::string& job) {
  const auto nodes = nodes_of_job_.find(job);
  if (nodes == nodes_of_job_.end()) return;
  nodes->second.erase(node);
  if (nodes->second.empty()) nodes_of_job_.erase(nodes);
}

// Releases the name of a node. If the process has connected again in the meantime, it claims the
// name again within a few seconds.
void EventHub::Release(const store::NodeClaim& claim) {
  boost::asio::post(pool_, [self = shared_from_this(), claim] {
    if (auto released = self->store_.ReleaseNode(claim); !released) {
      self->failed_(released.error());
    }
  });
}

std::vector<store::NodeClaim> EventHub::Claims() const {
  std::vector<store::NodeClaim> claims;
  for (const auto& [name, node] : nodes_) {
    claims.push_back({.node = name, .instance = node.instance});
  }
  return claims;
}

void EventHub::UpdateClaims(std::vector<store::NodeClaim> claims,
                            std::vector<std::string> refused) {
  boost::asio::post(loop_, [self = shared_from_this(), claims = std::move(claims),
                            lost = std::set(refused.begin(), refused.end())] {
    for (const store::NodeClaim& claim : claims) {
      const auto node = self->nodes_.find(claim.node);
      const bool is_open = node != self->nodes_.end() && node->second.instance == claim.instance;
      const bool is_lost = lost.contains(claim.node);
      if (is_open && is_lost) node->second.stream->Close();
      // The stream has closed in the meantime, and its name was already released.
      if (!is_open && !is_lost) self->Release(claim);
    }
  });
}

std::vector<std::string> EventHub::CloseInvalid(
    const std::function<bool(const Identity&)>& is_valid) {
  std::vector<std::string> closed;
  for (const auto& [name, node] : nodes_) {
    if (!node.stream->IsOpen() || is_valid(node.identity)) continue;
    node.stream->Close();
    closed.push_back(name);
  }
  return closed;
}

void EventHub::CloseAll() {
  for (const auto& [name, node] : std::exchange(nodes_, {})) node.stream->Close();
  nodes_of_job_.clear();
}

void EventHub::Receive(const store::Notice& notice) {
  boost::asio::post(loop_, [self = shared_from_this(), notice] {
    if (notice.kind == store::Notice::Kind::kAssignment) {
      const auto found = self->nodes_of_job_.find(notice.name);
      if (found != self->nodes_of_job_.end()) self->SendJob(notice.name, found->second);
    } else if (notice.kind == store::Notice::Kind::kNode) {
      if (self->nodes_.contains(notice.name)) self->RequestNodeRead(notice.name);
    } else if (notice.kind == store::Notice::Kind::kReadAgain) {
      for (const auto& [name, ignored] : self->nodes_) self->RequestNodeRead(name);
    }
  });
}

void EventHub::RequestNodeRead(const std::string& node) {
  const auto [read, is_first] = node_reads_.try_emplace(node, Afterwards::kNothing);
  if (is_first) return StartNodeRead(node);
  read->second = Afterwards::kReadAgain;
}

void EventHub::StartNodeRead(const std::string& node) {
  const Node& open = nodes_[node];
  std::set<std::string> known;
  for (const auto& [job, ignored] : open.jobs) known.insert(job);
  for (const auto& [job, ignored] : open.positions) known.insert(job);
  boost::asio::post(pool_, [self = shared_from_this(), node, known = std::move(known)] {
    auto state = self->ReadNode(node, known);
    if (!state) self->failed_(state.error());
    boost::asio::post(self->loop_, [self, node, state = std::move(state)] {
      const bool is_open = self->nodes_.contains(node);
      const auto read = self->node_reads_.extract(node);
      if (is_open && state) self->Take(node, *state);
      if (is_open && read.mapped() == Afterwards::kReadAgain) self->RequestNodeRead(node);
    });
  });
}

// Reads the jobs of the node, and finds which of the node's earlier jobs have ended.
Result<EventHub::NodeState> EventHub::ReadNode(const std::string& node,
                                               const std::set<std::string>& known) {
  PERSEUS_ASSIGN_OR_RETURN(auto records, store_.ListJobsOfNode(node));
  NodeState state;
  for (const store::NodeRecord& record : records) {
    PERSEUS_ASSIGN_OR_RETURN(auto ranks, telemetry::ParseNodeRanks(record.ranks));
    state.jobs.emplace(record.job, std::move(ranks));
  }
  for (const std::string& job : known) {
    if (state.jobs.contains(job)) continue;
    PERSEUS_ASSIGN_OR_RETURN(const auto record, store_.FindJob(job));
    if (record && record->ended == 0) continue;
    // If a job is missing, it has ended and was deleted.
    auto ended = std::make_shared<JobState>();
    ended->job = job;
    ended->key = record ? record->key : "";
    ended->has_ended = true;
    state.ended.push_back(std::move(ended));
  }
  return state;
}

void EventHub::Take(const std::string& node, const NodeState& state) {
  Node& open = nodes_[node];
  for (const auto& [job, ranks] : state.jobs) {
    NodeJob& of_node = open.jobs[job];
    // The last event lacks plans for the new ranks.
    if (of_node.ranks != ranks) of_node = {.ranks = ranks, .sent = 0};
    nodes_of_job_[job].insert(node);
  }
  std::set<std::string> ended;
  for (const auto& job : state.ended) ended.insert(job->job);
  for (auto position = open.positions.begin(); position != open.positions.end();) {
    const auto& [job, version] = *position;
    const bool is_here = state.jobs.contains(job) || ended.contains(job);
    // If an older database was restored, a job may run although the node has received its end. Then
    // this position of the node does not count.
    const bool counts = version != kEnded || ended.contains(job);
    if (is_here && counts) open.jobs[job].sent = version;
    position = is_here ? open.positions.erase(position) : std::next(position);
  }
  for (const auto& job : state.ended) Send(node, *job);
  for (auto job = open.jobs.begin(); job != open.jobs.end();) {
    if (state.jobs.contains(job->first)) {
      ++job;
      continue;
    }
    Leave(node, job->first);
    job = open.jobs.erase(job);
  }
  for (const auto& [job, ignored] : state.jobs) SendJob(job, {node});
}

void EventHub::SendJob(const std::string& job, const std::set<std::string>& nodes) {
  Reading& reading = readings_[job];
  reading.next.insert(nodes.begin(), nodes.end());
  if (!reading.is_under_way) StartReading(job);
}

void EventHub::StartReading(const std::string& job) {
  Reading& reading = readings_[job];
  reading.is_under_way = true;
  std::set<std::string> nodes = std::exchange(reading.next, {});
  Shapes shapes;
  for (const std::string& name : nodes) {
    const auto node = nodes_.find(name);
    if (node == nodes_.end()) continue;
    const auto of_job = node->second.jobs.find(job);
    if (of_job != node->second.jobs.end()) shapes.insert(of_job->second.ranks);
  }
  boost::asio::post(pool_, [self = shared_from_this(), job, nodes = std::move(nodes),
                            shapes = std::move(shapes)]() mutable {
    auto state = self->ReadJobState(job, shapes);
    if (!state) self->failed_(state.error());
    boost::asio::post(self->loop_, [self, job, nodes = std::move(nodes), state = std::move(state)] {
      self->SendJobState(job, nodes, state ? state->get() : nullptr);
    });
  });
}

void EventHub::SendJobState(const std::string& job, const std::set<std::string>& nodes,
                            const JobState* state) {
  if (state != nullptr) {
    for (const std::string& node : nodes) Send(node, *state);
  }
  Reading& reading = readings_[job];
  reading.is_under_way = false;
  if (!reading.next.empty()) return StartReading(job);
  readings_.erase(job);
}

// Returns null if the job does not exist or has no assignment yet.
Result<std::shared_ptr<const EventHub::JobState>> EventHub::ReadJobState(const std::string& job,
                                                                         const Shapes& shapes) {
  const auto nothing = std::shared_ptr<const JobState>();
  PERSEUS_ASSIGN_OR_RETURN(auto record, store_.FindJob(job));
  if (!record) return nothing;
  auto state = std::make_shared<JobState>();
  state->job = record->id;
  state->key = record->key;
  state->has_ended = record->ended != 0;
  if (state->has_ended) return std::shared_ptr<const JobState>(std::move(state));
  PERSEUS_ASSIGN_OR_RETURN(auto assignment, store_.FindNewestAssignment(job));
  if (!assignment) return nothing;
  state->version = assignment->version;
  state->assignment = std::move(assignment->assignment);
  for (const telemetry::NodeRanks& shape : shapes) {
    for (auto& needed : PlansFor(state->assignment, shape)) {
      PERSEUS_ASSIGN_OR_RETURN(auto cut, cuts_.Get(needed.first, needed.second));
      if (cut && cut->size() <= kMaxInlineBytes) state->files[needed] = cut;
    }
  }
  return std::shared_ptr<const JobState>(std::move(state));
}

std::string EventHub::Positions(const Node& node) {
  std::string text;
  for (const auto& [job, of_node] : node.jobs) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", job, of_node.sent);
  }
  for (const auto& [job, version] : node.positions) {
    text += fmt::format("{}{}:{}", text.empty() ? "" : " ", job, version);
  }
  return text;
}

void EventHub::Send(const std::string& name, const JobState& state) {
  const auto open = nodes_.find(name);
  if (open == nodes_.end()) return;
  Node& node = open->second;
  const auto found = node.jobs.find(state.job);
  if (found == node.jobs.end()) return;
  NodeJob& job = found->second;
  if (job.sent == kEnded || (!state.has_ended && state.version <= job.sent)) return;
  job.sent = state.has_ended ? kEnded : state.version;
  ++events_;
  if (!state.has_ended) return SendAssignment(node, job, state);
  node.stream->Send(std::make_shared<const std::string>(
      fmt::format("event: {}\nid: {}\ndata: {}\n\n", protocol::kEndedEvent, Positions(node),
                  protocol::FormatEvent(protocol::EndedEvent{state.job, state.key}))));
}

void EventHub::SendAssignment(Node& node, const NodeJob& job, const JobState& state) {
  const store::PlannedAssignment& assignment = state.assignment;
  protocol::AssignmentEvent event{.job = state.job,
                                  .key = state.key,
                                  .version = state.version,
                                  .from_step = assignment.from_step,
                                  .plans = {},
                                  .target = assignment.target,
                                  .reason = assignment.reason,
                                  .upcoming = assignment.upcoming};
  for (const auto& [pipeline, ranks] : job.ranks) {
    if (pipeline >= static_cast<int>(assignment.pipelines.size())) continue;
    event.plans[pipeline] = assignment.pipelines[static_cast<std::size_t>(pipeline)].plan;
  }
  // All streams share the texts of the cuts.
  std::vector<std::pair<std::string, protocol::SharedText>> files;
  for (const auto& needed : PlansFor(assignment, job.ranks)) {
    const auto file = state.files.find(needed);
    if (file != state.files.end()) files.emplace_back(needed.first, file->second);
  }
  const auto send = [&node](std::string text) {
    node.stream->Send(std::make_shared<const std::string>(std::move(text)));
  };
  send(fmt::format("event: {}\nid: {}\ndata: ", protocol::kAssignmentEvent, Positions(node)));
  for (protocol::SharedText& part : protocol::FormatEvent(event, files)) {
    node.stream->Send(std::move(part));
  }
  send("\n\n");
}

}  // namespace perseus::server
