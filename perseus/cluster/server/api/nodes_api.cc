// The endpoints of nodes: attach, report, and the stream of assignments.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/http/offload.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/cluster/server/api/endpoints.h"
#include "perseus/cluster/server/api/fleet_status.h"
#include "perseus/cluster/server/api/job_health.h"
#include "perseus/cluster/server/api/job_view.h"
#include "perseus/cluster/server/events/event_hub.h"
#include "perseus/cluster/telemetry/node_ranks.h"

namespace perseus::server {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using nlohmann::ordered_json;

constexpr std::size_t kMaxAttachmentBytes = 1 << 20;  // 4,096 ranks with UUIDs.
// 256 steps of a job take 40 kB, so a node can send the unsent steps of 100 jobs.
constexpr std::size_t kMaxReportBytes = 4 << 20;
constexpr const char* kJobOfAnotherUser = "The job belongs to another user";
constexpr int kDefaultNodes = 100;
constexpr int kMaxNodes = 1000;
constexpr std::size_t kMaxNodeNameBytes = 253;  // The longest host name.
// After this time without a step, ranks count as unused. A pause of a job, such as a checkpoint or
// an evaluation, is shorter.
constexpr Milliseconds kRanksAreIdleAfter = 600'000;

Answer<std::string> NodeName(const Context& context) {
  const std::string& name = context.Path("node");
  PERSEUS_RETURN_IF_ERROR(CheckNodeName(name));
  return name;
}

constexpr std::size_t kMaxInstanceBytes = 64;
constexpr std::string_view kAboutInstances = "up to 64 letters, digits, '-' and '_'";
bool IsInstance(std::string_view text) {
  return text.size() <= kMaxInstanceBytes &&
         text.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
             "0123456789_-") == std::string_view::npos;
}

// Returns the instance, the id of the node's process. A node without an instance counts as one
// process.
Answer<std::string> ReadInstance(const Context& context) {
  const std::string_view instance = context.request.Query("instance");
  if (IsInstance(instance)) return std::string(instance);
  return Refuse(400, "The request is wrong",
                fmt::format("{} is not the instance of a process", Excerpt(instance)),
                std::string(kAboutInstances), "?instance");
}

// Checks that the process has the name of the node. `pointer` is the place of the instance in the
// body.
Answer<void> ClaimName(const Context& context, const store::NodeClaim& claim, const char* pointer) {
  PERSEUS_ASSIGN_OR_RETURN(const auto refused,
                           context.services.store.ClaimNodes(
                               {claim}, context.now, context.now - telemetry::kNodeIsSilentAfter));
  if (refused.empty()) return {};
  return Refuse(409, "Another process is this node",
                fmt::format("another process of perseus node has the name {}: it is connected, or "
                            "was connected less than {} s ago",
                            claim.node, ToSeconds(telemetry::kNodeIsSilentAfter)),
                "start one of them with another `name`", pointer);
}

http::Problem TooManyStreams() {
  return {.status = 429,
          .title = "Too many event streams",
          .detail = "the token has as many event streams as it may have",
          .pointer = "",
          .remedy =
              "give nodes tokens of their own (perseus node --join-token-file), or ask an "
              "operator for a higher `max_streams_of_token`",
          .retry_after_s = 5};
}

protocol::Attachment ReadAttachment(const Node& body, const job_planning::JobSpec& spec) {
  const protocol::HighestRanks highest{
      .dp_rank = spec.planned.pipelines - 1,
      .pp_rank = static_cast<int>(spec.planned.schedule.pp_ranks.size()) - 1,
      .tp_rank = spec.planned.model.gpus_per_stage - 1};
  protocol::Attachment attachment = protocol::ReadAttachment(body, highest);
  if (!IsInstance(attachment.instance)) {
    ThrowAt(body.Member("instance").path, "is not an instance ({})", kAboutInstances);
  }
  return attachment;
}

// Attaches the ranks. A caller that may be any node can take ranks from other nodes, because a
// restarted job may run on other nodes. A caller that is bound to certain nodes can take only
// unused ranks.
Answer<void> AttachRanks(const Context& context, const std::string& name,
                         const std::string& ranks) {
  store::InUse in_use;
  if (!context.identity.IsOfWholeFleet()) {
    in_use = {.silent_since = context.now - telemetry::kNodeIsSilentAfter,
              .idle_since = context.now - kRanksAreIdleAfter};
  }
  PERSEUS_ASSIGN_OR_RETURN(
      const auto held, context.services.store.AttachNode(context.job->id, name, ranks, context.now,
                                                         in_use, context.By()));
  if (held.empty()) return {};
  const store::HeldRank& rank = held.front();
  return Refuse(
      409, "Another node has this rank",
      fmt::format("node {} runs rank dp_rank {}, pp_rank {}, tp_rank {} of job {}{}", rank.node,
                  rank.dp_rank, rank.pp_rank, rank.tp_rank, context.job->key,
                  held.size() == 1 ? "" : fmt::format(", and {} more", held.size() - 1)),
      fmt::format("the rank is free when that node detaches it, is silent for {} s, or "
                  "runs no step for {} s; an operator can detach the node",
                  ToSeconds(telemetry::kNodeIsSilentAfter), ToSeconds(kRanksAreIdleAfter)),
      "/ranks");
}

// Checks that the ranks belong to the user of the job. Otherwise, every user of a node could take a
// job: the user only has to write its key into a job directory.
Answer<void> CheckUser(const job_planning::JobSpec& spec, const protocol::Attachment& attachment,
                       const std::string& node) {
  const std::vector<std::string>& users = attachment.users;
  if (spec.user.empty() || std::ranges::find(users, spec.user) != users.end()) return {};
  return Refuse(
      403, kJobOfAnotherUser,
      users.empty()
          ? fmt::format("job {} is for the ranks of user {}, and node {} does not say whose these "
                        "ranks are",
                        spec.key, spec.user, node)
          : fmt::format(
                "job {} is for the ranks of user {}, and those on node {} belong to user {}",
                spec.key, spec.user, node, Excerpt(users.front())),
      "register the job with this `user`, or write the key of another job into server.json",
      "/users");
}

Answer<http::Response> Attach(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto name, NodeName(context));
  const store::JobRecord& job = *context.job;
  PERSEUS_RETURN_IF_ERROR(RequireRunning(job));
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(job.body));
  PERSEUS_ASSIGN_OR_RETURN(const auto attachment,
                           ReadBody(context.request.body, protocol::kDeepestAttachment,
                                    [&](const Node& node) { return ReadAttachment(node, spec); }));
  PERSEUS_RETURN_IF_ERROR(CheckUser(spec, attachment, name));
  const store::NodeClaim claim{.node = name, .instance = attachment.instance};
  PERSEUS_RETURN_IF_ERROR(ClaimName(context, claim, "/instance"));
  store::Store& store = context.services.store;
  PERSEUS_RETURN_IF_ERROR(AttachRanks(context, name, protocol::FormatRanks(attachment.ranks)));
  if (attachment.restarted) {
    // Record the restart, because a new assignment must not begin at a step of the previous run.
    PERSEUS_RETURN_IF_ERROR(store.RecordSteps({{.job = job.id,
                                                .counts = store::StepRecord::Counts::kRestart,
                                                .step = -1,
                                                .summary = job.summary,
                                                .at = context.now}}));
    PERSEUS_RETURN_IF_ERROR(context.services.reports.Restart(job.id));
  }
  return JsonResponse({{"job", job.id}, {"key", job.key}, {"node", name}});
}

Answer<http::Response> Detach(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto name, NodeName(context));
  PERSEUS_RETURN_IF_ERROR(context.services.store.DetachNode(context.job->id, name));
  return JsonResponse({{"job", context.job->id}, {"node", name}});
}

Answer<http::Response> Report(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto name, NodeName(context));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto reports,
      ReadBody(context.request.body, protocol::kDeepestReports, protocol::ReadReports));
  PERSEUS_ASSIGN_OR_RETURN(const auto not_attached,
                           context.services.reports.Take(name, reports.jobs, context.now));
  return JsonResponse({{"not_attached", not_attached},
                       {"refused", reports.refused},
                       {"takes", ordered_json::array({protocol::kRunningKey})}});
}

Answer<http::Response> JobsOfNode(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto name, NodeName(context));
  PERSEUS_ASSIGN_OR_RETURN(const auto jobs, context.services.store.ListJobsOfNode(name));
  auto list = ordered_json::array();
  for (const store::NodeRecord& job : jobs) {
    list.push_back({{"job", job.job},
                    {"acknowledged", job.acknowledged},
                    {"following", job.following},
                    {"ranks", ordered_json::parse(job.ranks)}});
  }
  return JsonResponse({{"node", name}, {"jobs", std::move(list)}});
}

// Lists each node with its jobs. A node is connected if its process renewed its claim of the name.
Answer<http::Response> ListNodes(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto limit, ReadLimit(context.request, kDefaultNodes, kMaxNodes));
  store::Store& store = context.services.store;
  PERSEUS_ASSIGN_OR_RETURN(const auto nodes,
                           store.ListNodes(context.request.Query("after"), limit));
  auto list = ordered_json::array();
  for (const store::NodeClaim& node : nodes) {
    PERSEUS_ASSIGN_OR_RETURN(auto records, store.ListJobsOfNode(node.node));
    auto jobs = ordered_json::array();
    for (store::NodeRecord& record : records) {
      PERSEUS_ASSIGN_OR_RETURN(const auto job, store.FindJob(record.job));
      if (!job) continue;
      PERSEUS_ASSIGN_OR_RETURN(const auto newest,
                               store.FindNewestAssignment(job->id, job->assignment_version));
      context.services.reports.AddLastReport(record);
      const std::int64_t from_step = newest ? newest->assignment.from_step : 0;
      ordered_json row{{"job", job->id},
                       {"key", job->key},
                       {"state", NodeState(record, *job, from_step, context.now)}};
      row.update(NodeJson(record, context.now));
      row["ranks"] = HealthOf(record, context.now).ranks;
      jobs.push_back(std::move(row));
    }
    const bool is_connected = context.now - node.seen <= telemetry::kNodeIsSilentAfter;
    list.push_back({{"node", node.node}, {"connected", is_connected}, {"jobs", std::move(jobs)}});
  }
  ordered_json answer{{"nodes", std::move(list)}};
  if (static_cast<int>(nodes.size()) == limit) answer["next"] = nodes.back().node;
  return JsonResponse(answer);
}

}  // namespace

Answer<void> CheckNodeName(std::string_view name) {
  const bool fits =
      name.size() <= kMaxNodeNameBytes && name.find_first_not_of(
                                              "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                              "0123456789._-") == std::string_view::npos;
  if (fits) return {};
  return Refuse(400, "The request is wrong",
                fmt::format("{} is not the name of a node", Excerpt(name)),
                "use letters, digits, '.', '_' and '-', such as a host name");
}

void AddNodeEndpoints(Endpoints& endpoints, EventHub& hub, boost::asio::thread_pool& pool) {
  endpoints.Add("PUT", "/v1/nodes/{node}/jobs/{job}", Access::kNode, Attach,
                {.body_bytes = kMaxAttachmentBytes});
  endpoints.Add("DELETE", "/v1/nodes/{node}/jobs/{job}", Access::kNode, Detach);
  endpoints.Add("GET", "/v1/nodes/{node}/jobs", Access::kReadFleet, JobsOfNode);
  endpoints.Add("GET", "/v1/nodes", Access::kReadFleet, ListNodes, {.query = {"after", "limit"}});
  endpoints.Add("POST", "/v1/nodes/{node}/reports", Access::kNode, Report,
                {.body_bytes = kMaxReportBytes});
  endpoints.AddWaiting(
      "GET", "/v1/nodes/{node}/events", Access::kNode,
      [&hub, &pool](http::Call& call, Context context) -> boost::asio::awaitable<http::Response> {
        const auto name = NodeName(context);
        if (!name) co_return http::ProblemResponse(name.error());
        const auto instance = ReadInstance(context);
        if (!instance) co_return http::ProblemResponse(instance.error());
        const store::NodeClaim claim{.node = *name, .instance = *instance};
        const auto claim_name = [&] { return ClaimName(context, claim, ""); };
        const Answer<void> claimed = co_await http::Offload(pool, claim_name);
        if (!claimed) co_return http::ProblemResponse(claimed.error());
        // Check the token again. After the stream is open, the hub closes it if the token is
        // revoked. Nothing else runs between this check and the opening.
        if (!context.services.rights.IsValid(context.identity, context.services.now())) {
          co_return http::ProblemResponse(TokenIsGone());
        }
        auto ticket = context.services.limits.OpenStream(context.identity.token);
        if (!ticket) co_return http::ProblemResponse(TooManyStreams());
        auto stream = call.open_stream();
        if (!stream) co_return http::ProblemResponse(ProblemOf(stream.error()));
        hub.Open(claim, call.request.Field("last-event-id"), context.identity, *std::move(stream),
                 std::move(ticket));
        co_return http::Response();
      },
      {.query = {"instance"}});
}

}  // namespace perseus::server
