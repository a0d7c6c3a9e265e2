// The four endpoints of Zeus' pipeline frequency optimizer. With them, training code with the
// client of Zeus can use plans of Perseus without a change (docs/how-to/zeus-clients.md).
//
// Answers have the format of the Zeus server: JSON without white space and without a final newline.
// The status is 200 for an accepted body, and 422 for a wrong body. Unknown keys are ignored, as in
// the Zeus server, because forks of its client exist. The `job_id` is the id of a Perseus job.
#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/number.h"
#include "perseus/base/units.h"
#include "perseus/cluster/http/offload.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/api/job_view.h"
#include "perseus/cluster/server/api/zeus_api.h"

namespace perseus::server {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kDeepestZeusBody = 6;
constexpr std::size_t kMaxResultBytes = 1 << 20;
// Nobody reads this answer. The status does not count as a failure of the server.
constexpr int kClientLeft = 499;
constexpr std::size_t kMaxFrequencies = 4096;
constexpr std::size_t kMaxInstructionNameBytes = 64;
constexpr int kJobsOfPage = 100;
constexpr std::chrono::milliseconds kPollInterval{250};
constexpr std::size_t kMostKept = 32;

template <typename Value>
void Keep(std::map<std::string, Value>& kept, const std::string& id, const Value& value) {
  if (kept.size() >= kMostKept) kept.clear();
  kept.insert_or_assign(id, value);
}

// Returns the degrees of a job. Generates its schedule, which may take a long time.
Result<ZeusDegrees> DegreesOf(const store::JobRecord& job) {
  PERSEUS_ASSIGN_OR_RETURN(const auto spec, job_planning::StoredJobSpec(job.body));
  return ZeusDegrees{.pp = static_cast<int>(spec.planned.schedule.pp_ranks.size()),
                     .dp = spec.planned.pipelines,
                     .tp = spec.planned.model.gpus_per_stage};
}

struct JobInfo {
  ZeusDegrees degrees;
  std::string metadata;
};

http::Response Compact(const ordered_json& value) {
  http::Response response;
  response.body = JsonText(value);
  return response;
}

// Returns the format of a validation error of the Zeus server: 422.
template <typename T>
Answer<T> Unprocessable(Answer<T> answer) {
  if (!answer && answer.error().status == 400) answer.error().status = 422;
  return answer;
}

void RequireObject(const Node& node) {
  if (!node.value.is_object()) ThrowAt(node.path, "is not an object (write {{...}})");
}

JobInfo ReadJobInfo(const Node& node) {
  RequireObject(node);
  if (node.Has("job_id") && !node.Member("job_id").Text().empty()) {
    ThrowAt("job_id", "is not empty (leave it empty: the server chooses it)");
  }
  const auto degree = [&](std::string_view key) {
    return node.Member(key).Count(1, kMostPipelines, "a degree, such as 8");
  };
  JobInfo info;
  info.degrees = {degree("pp_degree"), degree("dp_degree"), degree("tp_degree")};
  const auto world = static_cast<std::int64_t>(degree("world_size"));
  if (world != std::int64_t{info.degrees.pp} * info.degrees.dp * info.degrees.tp) {
    ThrowAt("world_size", "is not pp_degree * dp_degree * tp_degree (correct one of them)");
  }
  if (node.Has("job_metadata") && !node.Member("job_metadata").value.is_null()) {
    info.metadata = node.Member("job_metadata").Text();
  }
  return info;
}

constexpr const char* kRegisterFirst =
    "register the job first (perseus job register) and give its key as job_metadata";

// Returns the only running job with these degrees.
Answer<store::JobRecord> JobOfDegrees(store::Store& store, const ZeusDegrees& degrees) {
  std::optional<store::JobRecord> found;
  std::string after;
  while (true) {
    PERSEUS_ASSIGN_OR_RETURN(auto jobs,
                             store.ListJobs(store::Store::Which::kRunning, after, kJobsOfPage));
    if (jobs.empty()) break;
    after = jobs.back().id;
    for (store::JobRecord& job : jobs) {
      const auto degrees_of_job = DegreesOf(job);
      if (!degrees_of_job || *degrees_of_job != degrees) continue;
      if (found) {
        return Refuse(422, "Several jobs match",
                      fmt::format("{} and {} both have these degrees", found->key, job.key),
                      kRegisterFirst, "/job_metadata");
      }
      found = std::move(job);
    }
  }
  if (found) return *std::move(found);
  return Refuse(422, "There is no such job", "no running job has these degrees", kRegisterFirst,
                "/job_metadata");
}

// Returns the job that the metadata names. Without metadata, returns the only job with these
// degrees. If the token has bounds, returns only a job within these bounds, so that the caller
// learns nothing about other jobs.
Answer<store::JobRecord> JobOf(const Context& context, JobInfo info) {
  store::Store& store = context.services.store;
  const Identity& identity = context.identity;
  if (identity.role == Identity::Role::kJob && info.metadata.empty()) {
    info.metadata = identity.jobs.front();
  }
  if (info.metadata.empty() && !identity.IsBoundToJobs()) {
    return JobOfDegrees(store, info.degrees);
  }
  PERSEUS_ASSIGN_OR_RETURN(auto job, store.FindJob(info.metadata));
  Resource resource{.job = info.metadata};
  if (job) resource = {.job = job->key, .owner = job->owner};
  PERSEUS_RETURN_IF_ERROR(Allow(identity, Access::kJob, resource));
  if (!job || job->ended != 0) {
    return Refuse(
        422, "There is no such job",
        fmt::format("job_metadata {} is not the key of a running job", Excerpt(info.metadata)),
        kRegisterFirst, "/job_metadata");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto degrees_of_job, DegreesOf(*job));
  if (degrees_of_job != info.degrees) {
    return Refuse(422, "The job has other degrees",
                  fmt::format("job {} has pp {}, dp {}, tp {}", job->key, degrees_of_job.pp,
                              degrees_of_job.dp, degrees_of_job.tp),
                  "correct the degrees, or job_metadata", "/pp_degree");
  }
  return *std::move(job);
}

// The first rank of a run calls this endpoint before any rank registers. So ranks that already
// exist are from an earlier run, or will register again.
Answer<http::Response> RegisterJob(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto info, Unprocessable(ReadBody(context.request.body,
                                                                   kDeepestZeusBody, ReadJobInfo)));
  PERSEUS_ASSIGN_OR_RETURN(const auto job, JobOf(context, info));
  PERSEUS_RETURN_IF_ERROR(context.services.store.ClearZeusRanks(job.id));
  return Compact(job.id);
}

struct RankInfo {
  int rank = 0;
  int dp_rank = 0;
  int pp_rank = 0;
  int tp_rank = 0;
  std::vector<int> frequencies_mhz;
};

RankInfo ReadRankInfo(const Node& node) {
  RequireObject(node);
  const auto rank = [&](std::string_view key) {
    return node.Member(key).Count(0, kHighestRank, "a rank, from 0");
  };
  RankInfo info{rank("rank"), rank("dp_rank"), rank("pp_rank"), rank("tp_rank"), {}};
  const Node frequencies = node.Member("available_frequencies");
  if (frequencies.ListSize() == 0) {
    ThrowAt(frequencies.path, "is empty (list the clocks of the GPU in MHz, such as [1410, 1395])");
  }
  if (frequencies.ListSize() > kMaxFrequencies) {
    ThrowAt(frequencies.path, "has more than {} entries (list each once)", kMaxFrequencies);
  }
  for (std::size_t i = 0; i < frequencies.ListSize(); ++i) {
    info.frequencies_mhz.push_back(
        frequencies[i].Count(1, kHighestFrequencyMhz, "MHz, such as 1410"));
  }
  std::ranges::sort(info.frequencies_mhz);
  return info;
}

// Formats the known members. Omits other members that a client sent.
std::string FormatRankInfo(const RankInfo& info) {
  return json{{"rank", info.rank},
              {"dp_rank", info.dp_rank},
              {"pp_rank", info.pp_rank},
              {"tp_rank", info.tp_rank},
              {"available_frequencies", info.frequencies_mhz}}
      .dump();
}

RankInfo ReadRankOf(const Node& node, const ZeusDegrees& degrees) {
  RankInfo info = ReadRankInfo(node);
  const auto require = [](std::string_view key, int rank, int end) {
    if (rank >= end) ThrowAt(key, "is not below {} (ranks count from 0)", end);
  };
  require("rank", info.rank, degrees.world_size());
  require("dp_rank", info.dp_rank, degrees.dp);
  require("pp_rank", info.pp_rank, degrees.pp);
  require("tp_rank", info.tp_rank, degrees.tp);
  return info;
}

Answer<http::Response> RegisterRank(ZeusJobs& jobs, const Context& context) {
  PERSEUS_RETURN_IF_ERROR(RequireRunning(*context.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto degrees, jobs.Degrees(*context.job));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto info,
      Unprocessable(ReadBody(context.request.body, kDeepestZeusBody,
                             [&](const Node& node) { return ReadRankOf(node, degrees); })));
  const int place = (info.dp_rank * degrees.pp + info.pp_rank) * degrees.tp + info.tp_rank;
  PERSEUS_ASSIGN_OR_RETURN(
      const auto put,
      context.services.store.PutZeusRank(context.job->id, info.rank, place, FormatRankInfo(info)));
  if (!put) {
    return Refuse(422, "The request is wrong",
                  fmt::format("a rank other than {} is dp_rank {}, pp_rank {}, tp_rank {}",
                              info.rank, info.dp_rank, info.pp_rank, info.tp_rank),
                  "correct one of them; a new run begins with /register_job", "/rank");
  }
  return Compact(nullptr);
}

Answer<int> ReadRank(const http::Request& request) {
  const auto found = request.query.find("rank");
  if (found == request.query.end()) {
    return Refuse(422, "The request is wrong", "the query has no rank", "such as ?rank=3", "?rank");
  }
  const std::string& text = found->second;
  const auto rank = ParseNumber<int>(text);
  if (rank && *rank >= 0) return *rank;
  return Refuse(422, "The request is wrong", fmt::format("{} is not a rank", Excerpt(text)),
                "give a whole number from 0, such as ?rank=3", "?rank");
}

http::Response ScheduleFor(const RankInfo& info, const plan_file::PlanFile& plan) {
  auto frequencies = ordered_json::array();
  for (const plan_file::PlannedInstruction& instruction :
       plan.pp_ranks[static_cast<std::size_t>(info.pp_rank)].instructions) {
    if (!IsComputation(instruction.kind)) continue;
    // The lowest clock of the GPU that is equal to or above the planned clock.
    const auto at = std::ranges::lower_bound(info.frequencies_mhz, instruction.frequency_mhz);
    const int mhz = at != info.frequencies_mhz.end() ? *at : info.frequencies_mhz.back();
    frequencies.push_back(ordered_json::array({Name(instruction.kind), mhz}));
  }
  return Compact({{"rank", info.rank}, {"frequencies", std::move(frequencies)}});
}

// Returns nullopt if a rank or the plan is missing.
Answer<std::optional<http::Response>> ScheduleOf(const Services& services, ZeusJobs& jobs,
                                                 const std::string& id, int rank) {
  PERSEUS_ASSIGN_OR_RETURN(const auto job, services.store.FindJob(id));
  if (!job || job->ended != 0) {
    return Refuse(404, "There is no such job", "it has ended in the meantime", "register it again");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto degrees, jobs.Degrees(*job));
  if (rank >= degrees.world_size()) {
    return Refuse(422, "The request is wrong",
                  fmt::format("rank {} is not below {}", rank, degrees.world_size()),
                  "correct one of them", "?rank");
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto registered, services.store.FindZeusRank(id, rank));
  if (registered.ranks < degrees.world_size()) return std::optional<http::Response>();
  PERSEUS_ASSIGN_OR_RETURN(const auto assignment, services.store.FindNewestAssignment(id));
  if (!assignment) return std::optional<http::Response>();
  const auto& pipelines = assignment->assignment.pipelines;
  // While the plan is withdrawn, the ranks wait in the same way as before the first plan.
  if (pipelines.empty()) return std::optional<http::Response>();
  PERSEUS_ASSIGN_OR_RETURN(
      const auto info, json_file::Read(registered.body, "rank", kDeepestZeusBody, ReadRankInfo));
  PERSEUS_ASSIGN_OR_RETURN(
      const auto plan,
      jobs.Plan(services.store, pipelines[static_cast<std::size_t>(info.dp_rank)].plan));
  if (plan == nullptr) return std::optional<http::Response>();
  return ScheduleFor(info, *plan);
}

// Answers when all ranks have registered and a plan exists. The client waits without a time limit.
boost::asio::awaitable<http::Response> AwaitSchedule(boost::asio::thread_pool& pool, ZeusJobs& jobs,
                                                     http::Call& call, Context context) {
  const auto rank = ReadRank(context.request);
  if (!rank) co_return http::ProblemResponse(rank.error());
  const std::string job = context.job->id;
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  while (call.is_client_there()) {
    if (!jobs.IsWaiting(job, std::chrono::steady_clock::now())) {
      const auto find = [&] { return ScheduleOf(context.services, jobs, job, *rank); };
      Answer<std::optional<http::Response>> answer = co_await http::Offload(pool, find);
      if (!answer && answer.error().status != 503) co_return http::ProblemResponse(answer.error());
      // The wait may be long. The token may have been revoked in the meantime.
      if (!context.services.rights.IsValid(context.identity, context.services.now())) {
        co_return http::ProblemResponse(TokenIsGone());
      }
      if (answer && *answer) co_return **std::move(answer);
      jobs.SetWaiting(job, std::chrono::steady_clock::now() + kPollInterval);
    }
    timer.expires_after(kPollInterval);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
  co_return http::Response{.status = kClientLeft};
}

void CheckNumbers(const Node& list) {
  for (std::size_t i = 0; i < list.ListSize(); ++i) list[i].Number(0, 1e12, "a number");
}

// Checks lists of numbers. The levels of the lists are: instruction, iteration, and run of the
// instruction.
void CheckBreakdown(const Node& node) {
  RequireObject(node);
  for (const auto& [instruction, iterations] : node.value.items()) {
    if (instruction.size() > kMaxInstructionNameBytes) {
      ThrowAt(node.path, "has a name of more than {} letters (shorten it)",
              kMaxInstructionNameBytes);
    }
    const Node list{iterations, fmt::format("{}.{}", node.path, instruction)};
    for (std::size_t i = 0; i < list.ListSize(); ++i) CheckNumbers(list[i]);
  }
}

void CheckResult(const Node& node, const ZeusDegrees& degrees) {
  RequireObject(node);
  node.Member("rank").Count(0, degrees.world_size() - 1, "a rank of the job");
  for (const std::string_view key : {"iter_time", "iter_energy"}) CheckNumbers(node.Member(key));
  for (const std::string_view key : {"time_breakdown", "energy_breakdown"}) {
    if (node.Has(key)) CheckBreakdown(node.Member(key));
  }
}

// Checks the result, but does not store it. Plans need profiles, and the result of a single
// schedule has no other use.
Answer<http::Response> TakeResult(ZeusJobs& jobs, const Context& context) {
  PERSEUS_RETURN_IF_ERROR(RequireRunning(*context.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto degrees, jobs.Degrees(*context.job));
  PERSEUS_RETURN_IF_ERROR(
      Unprocessable(ReadBody(context.request.body, kDeepestZeusBody, [&](const Node& node) {
        CheckResult(node, degrees);
        return true;
      })));
  return Compact(nullptr);
}

}  // namespace

Result<ZeusDegrees> ZeusJobs::Degrees(const store::JobRecord& job) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = degrees_.find(job.id); known != degrees_.end()) return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const ZeusDegrees degrees, DegreesOf(job));
  const MutexLock lock(mutex_);
  Keep(degrees_, job.id, degrees);
  return degrees;
}

Result<std::shared_ptr<const plan_file::PlanFile>> ZeusJobs::Plan(store::Store& store,
                                                                  const std::string& id) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = plans_.find(id); known != plans_.end()) return known->second;
  }
  PERSEUS_ASSIGN_OR_RETURN(const auto record, store.FindPlanById(id));
  if (!record) return nullptr;
  PERSEUS_ASSIGN_OR_RETURN(auto parsed, plan_file::ParsePlan(record->body, id));
  const auto plan = std::make_shared<const plan_file::PlanFile>(std::move(parsed));
  const MutexLock lock(mutex_);
  Keep(plans_, id, plan);
  return plan;
}

bool ZeusJobs::IsWaiting(const std::string& job, std::chrono::steady_clock::time_point now) const {
  const MutexLock lock(mutex_);
  const auto found = waiting_.find(job);
  return found != waiting_.end() && now < found->second;
}

void ZeusJobs::SetWaiting(const std::string& job, std::chrono::steady_clock::time_point until) {
  const MutexLock lock(mutex_);
  Keep(waiting_, job, until);
}

void AddZeusEndpoints(Endpoints& endpoints, boost::asio::thread_pool& pool) {
  const auto jobs = std::make_shared<ZeusJobs>();
  endpoints.Add("POST", "/register_job", Access::kJob, RegisterJob);
  endpoints.Add("POST", "/register_rank/{job}", Access::kJob,
                [jobs](const Context& context) { return RegisterRank(*jobs, context); });
  endpoints.AddWaiting("GET", "/schedule/{job}", Access::kRead,
                       [&pool, jobs](http::Call& call, Context context) {
                         return AwaitSchedule(pool, *jobs, call, std::move(context));
                       },
                       {.query = {"rank"}});
  endpoints.Add("POST", "/result/{job}", Access::kJob,
                [jobs](const Context& context) { return TakeResult(*jobs, context); },
                {.body_bytes = kMaxResultBytes});
}

}  // namespace perseus::server
