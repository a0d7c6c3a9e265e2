// The four endpoints of Zeus' pipeline frequency optimizer, so that training code which has its
// client gets our plans unchanged (docs/server.md, "Clients of Zeus").
//
// Answers are written as that server writes them: no space in JSON, no newline behind it, 200 for
// whatever was taken, 422 for a body that is wrong. Its `job_id` is ours.
#include <fmt/format.h>

#include <array>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <charconv>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/mutex.h"
#include "perseus/http/offload.h"
#include "perseus/server/endpoints.h"
#include "perseus/server/job_spec.h"
#include "perseus/server/job_view.h"
#include "perseus/server/planning.h"

namespace perseus {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kDeepest = 6;
constexpr int kMostDegree = 1'000'000;
constexpr std::size_t kLargestResult = 1 << 20;
constexpr int kClientLeft = 499;  // Nobody reads that; it is no failure of ours.
constexpr int kMostJobsLookedAt = 1000;
constexpr std::chrono::milliseconds kLookEvery{250};

struct JobInfo {
  int pp = 1;
  int dp = 1;
  int tp = 1;
  std::string metadata;
};

http::Response Compact(const ordered_json& value) {
  http::Response response;
  response.body = value.dump();
  return response;
}

// As that server's validation: 422.
template <typename T>
Answer<T> Unprocessable(Answer<T> answer) {
  if (!answer && answer.error().status == 400) answer.error().status = 422;
  return answer;
}

JobInfo ReadJobInfo(const Node& node) {
  constexpr std::array<std::string_view, 6> kKeys{"job_id",    "pp_degree",  "dp_degree",
                                                  "tp_degree", "world_size", "job_metadata"};
  node.RequireObject(kKeys);
  if (node.Has("job_id") && !node.Member("job_id").Text().empty()) {
    ThrowAt("job_id", "is not empty (the server gives it)");
  }
  JobInfo info;
  const auto degree = [&](std::string_view key) {
    return node.Member(key).Count(1, kMostDegree, "a degree, such as 8");
  };
  info.pp = degree("pp_degree");
  info.dp = degree("dp_degree");
  info.tp = degree("tp_degree");
  const auto world = static_cast<std::int64_t>(degree("world_size"));
  if (world != std::int64_t{info.pp} * info.dp * info.tp) {
    ThrowAt("world_size", "is not pp_degree * dp_degree * tp_degree (correct one of them)");
  }
  if (node.Has("job_metadata") && !node.Member("job_metadata").value.is_null()) {
    info.metadata = node.Member("job_metadata").Text();
  }
  return info;
}

bool Fits(const JobSpec& spec, const JobInfo& info) {
  return static_cast<int>(spec.planned.schedule.ranks.size()) == info.pp &&
         spec.planned.pipelines == info.dp && spec.planned.model.gpus_per_stage == info.tp;
}

// The job that the metadata names; without metadata, the only one of that shape. Of a job's token,
// its own: what others there are is not told.
Answer<JobRecord> JobOf(const Context& context, JobInfo info) {
  Store& store = context.services.store;
  if (context.principal.scope == Principal::Scope::kJob) {
    if (info.metadata.empty()) info.metadata = context.principal.job;
    auto may = Rights::Check(context.principal, Access::kJob, info.metadata);
    if (!may) return tl::unexpected(may.error());
  }
  const std::string remedy =
      "register the job first (perseus job register) and give its key as job_metadata";
  if (!info.metadata.empty()) {
    auto job = store.FindJob(info.metadata);
    if (!job) return Refuse(job);
    if (!*job || (*job)->ended != 0) {
      return Refuse(422, "There is no such job",
                    fmt::format("job_metadata {} is no running job's key", Excerpt(info.metadata)),
                    remedy, "/job_metadata");
    }
    const auto spec = StoredJobSpec((*job)->body);
    if (!spec) return Refuse(spec);
    if (!Fits(*spec, info)) {
      return Refuse(422, "The job is another one",
                    fmt::format("job {} has pp {}, dp {}, tp {}", (*job)->key,
                                spec->planned.schedule.ranks.size(), spec->planned.pipelines,
                                spec->planned.model.gpus_per_stage),
                    "correct the degrees, or job_metadata", "/pp_degree");
    }
    return **std::move(job);
  }
  const auto jobs = store.ListJobs(Store::Which::kRunning, "", kMostJobsLookedAt);
  if (!jobs) return Refuse(jobs);
  const JobRecord* found = nullptr;
  for (const JobRecord& job : *jobs) {
    const auto spec = StoredJobSpec(job.body);
    if (!spec || !Fits(*spec, info)) continue;
    if (found != nullptr) {
      return Refuse(422, "Which job?",
                    fmt::format("{} and {} both have these degrees", found->key, job.key), remedy,
                    "/job_metadata");
    }
    found = &job;
  }
  if (found != nullptr) return *found;
  return Refuse(422, "There is no such job", "no running job has these degrees", remedy,
                "/job_metadata");
}

Answer<http::Response> RegisterJob(const Context& context) {
  const auto info = Unprocessable(ReadBody(context.request.body, kDeepest, ReadJobInfo));
  if (!info) return tl::unexpected(info.error());
  const auto job = JobOf(context, *info);
  if (!job) return tl::unexpected(job.error());
  if (auto may = Rights::Check(context.principal, Access::kJob, job->key); !may) {
    return tl::unexpected(may.error());
  }
  return Compact(job->id);
}

struct RankInfo {
  int rank = 0;
  int dp_rank = 0;
  int pp_rank = 0;
  int tp_rank = 0;
  std::vector<int> frequencies_mhz;
};

RankInfo ReadRankInfo(const Node& node) {
  constexpr std::array<std::string_view, 5> kKeys{"rank", "dp_rank", "pp_rank", "tp_rank",
                                                  "available_frequencies"};
  node.RequireObject(kKeys);
  const auto rank = [&](std::string_view key) {
    return node.Member(key).Count(0, kMostDegree, "a rank, from 0");
  };
  RankInfo info{rank("rank"), rank("dp_rank"), rank("pp_rank"), rank("tp_rank"), {}};
  const Node frequencies = node.Member("available_frequencies");
  for (std::size_t i = 0; i < frequencies.ListSize(); ++i) {
    info.frequencies_mhz.push_back(frequencies[i].Count(1, kMostDegree, "MHz, such as 1410"));
  }
  std::ranges::sort(info.frequencies_mhz);
  return info;
}

int WorldSize(const JobSpec& spec) {
  return static_cast<int>(spec.planned.schedule.ranks.size()) * spec.planned.pipelines *
         spec.planned.model.gpus_per_stage;
}

Answer<http::Response> RegisterRank(const Context& context) {
  if (auto runs = RequireRunning(*context.job); !runs) return tl::unexpected(runs.error());
  const auto spec = StoredJobSpec(context.job->body);
  if (!spec) return Refuse(spec);
  const auto info = Unprocessable(ReadBody(context.request.body, kDeepest, [&](const Node& node) {
    const RankInfo read = ReadRankInfo(node);
    if (read.rank >= WorldSize(*spec))
      ThrowAt("rank", "is not below {} (ranks count from 0)", WorldSize(*spec));
    if (read.dp_rank >= spec->planned.pipelines) {
      ThrowAt("dp_rank", "is not below {} (ranks count from 0)", spec->planned.pipelines);
    }
    if (read.pp_rank >= static_cast<int>(spec->planned.schedule.ranks.size())) {
      ThrowAt("pp_rank", "is not below {} (ranks count from 0)",
              spec->planned.schedule.ranks.size());
    }
    return read;
  }));
  if (!info) return tl::unexpected(info.error());
  const auto put =
      context.services.store.PutRank(context.job->id, info->rank, context.request.body);
  if (!put) return Refuse(put);
  return Compact(nullptr);
}

Answer<int> AskedRank(const http::Request& request) {
  const auto found = request.query.find("rank");
  int rank = -1;
  if (found != request.query.end()) {
    const std::string& text = found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size()) rank = -1;
  }
  if (rank >= 0) return rank;
  return Refuse(422, "The request is wrong", "the query has no rank", "such as ?rank=3", "?rank");
}

// Nothing while a rank or the plan is missing.
Answer<std::optional<http::Response>> ScheduleOf(const Services& services, const std::string& id,
                                                 int rank) {
  const auto job = services.store.FindJob(id);
  if (!job) return Refuse(job);
  if (!*job || (*job)->ended != 0) {
    return Refuse(404, "There is no such job", "it has ended meanwhile", "register it again");
  }
  const auto spec = StoredJobSpec((*job)->body);
  if (!spec) return Refuse(spec);
  if (rank >= WorldSize(*spec)) {
    return Refuse(422, "The request is wrong",
                  fmt::format("rank {} is not below {}", rank, WorldSize(*spec)),
                  "correct one of them", "?rank");
  }
  const auto bodies = services.store.Ranks(id);
  if (!bodies) return Refuse(bodies);
  if (static_cast<int>(bodies->size()) < WorldSize(*spec)) return std::optional<http::Response>();
  const auto orders = services.store.NewestOrders(id);
  if (!orders) return Refuse(orders);
  if (!*orders) return std::optional<http::Response>();
  const auto parsed = ParsePlannedOrders((*orders)->body);
  if (!parsed) return Refuse(parsed);
  const auto info =
      json_file::Read((*bodies)[static_cast<std::size_t>(rank)], "rank", kDeepest, ReadRankInfo);
  if (!info) return Refuse(info);
  const std::string& plan_id = parsed->pipelines[static_cast<std::size_t>(info->dp_rank)].plan;
  const auto record = services.store.FindPlanById(plan_id);
  if (!record) return Refuse(record);
  if (!*record) return std::optional<http::Response>();
  const auto plan = ParsePlan((*record)->body, plan_id);
  if (!plan) return Refuse(plan);
  auto frequencies = ordered_json::array();
  for (const PlannedInstruction& instruction :
       plan->ranks[static_cast<std::size_t>(info->pp_rank)].instructions) {
    if (!IsComputation(instruction.kind)) continue;
    // The nearest that the GPU has and that is not slower.
    const auto at = std::ranges::lower_bound(info->frequencies_mhz, instruction.frequency_mhz);
    const int mhz = at != info->frequencies_mhz.end() ? *at
                    : info->frequencies_mhz.empty()
                        ? static_cast<int>(std::ceil(instruction.frequency_mhz))
                        : info->frequencies_mhz.back();
    frequencies.push_back(ordered_json::array({Name(instruction.kind), mhz}));
  }
  return Compact({{"rank", rank}, {"frequencies", std::move(frequencies)}});
}

// Which jobs were just seen to lack a rank or a plan: a thousand ranks wait for the same, and one
// look at it is enough.
class JustSeen {
 public:
  bool IsWaiting(const std::string& job, std::chrono::steady_clock::time_point now) {
    const MutexLock lock(mutex_);
    const auto found = until_.find(job);
    return found != until_.end() && now < found->second;
  }
  void SetWaiting(const std::string& job, std::chrono::steady_clock::time_point now) {
    const MutexLock lock(mutex_);
    std::erase_if(until_, [now](const auto& entry) { return entry.second <= now; });
    until_[job] = now + kLookEvery;
  }

 private:
  Mutex mutex_;
  std::map<std::string, std::chrono::steady_clock::time_point> until_ PERSEUS_GUARDED_BY(mutex_);
};

// Answers once all ranks have registered and there is a plan. Its client waits for good.
boost::asio::awaitable<http::Response> AwaitSchedule(boost::asio::thread_pool& pool,
                                                     JustSeen& just_seen, http::Call& call,
                                                     Context context) {
  const auto rank = AskedRank(context.request);
  if (!rank) co_return http::ProblemResponse(rank.error());
  const std::string job = context.job->id;
  boost::asio::steady_timer timer(co_await boost::asio::this_coro::executor);
  while (call.is_client_there()) {
    if (!just_seen.IsWaiting(job, std::chrono::steady_clock::now())) {
      const auto look = [&] { return ScheduleOf(context.services, job, *rank); };
      Answer<std::optional<http::Response>> answer = co_await http::Offload(pool, look);
      if (!answer && answer.error().status != 503) co_return http::ProblemResponse(answer.error());
      if (answer && *answer) co_return **std::move(answer);
      just_seen.SetWaiting(job, std::chrono::steady_clock::now());
    }
    timer.expires_after(kLookEvery);
    co_await timer.async_wait(boost::asio::use_awaitable);
  }
  co_return http::Response{.status = kClientLeft};
}

Answer<http::Response> TakeResult(const Context& context) {
  if (auto runs = RequireRunning(*context.job); !runs) return tl::unexpected(runs.error());
  const auto spec = StoredJobSpec(context.job->body);
  if (!spec) return Refuse(spec);
  const auto rank = Unprocessable(ReadBody(context.request.body, kDeepest, [&](const Node& node) {
    constexpr std::array<std::string_view, 5> kKeys{"rank", "iter_time", "iter_energy",
                                                    "time_breakdown", "energy_breakdown"};
    node.RequireObject(kKeys);
    for (const std::string_view key : {"iter_time", "iter_energy"}) {
      const Node list = node.Member(key);
      for (std::size_t i = 0; i < list.ListSize(); ++i) list[i].Number(0, 1e12, "a number");
    }
    return node.Member("rank").Count(0, WorldSize(*spec) - 1, "a rank of the job");
  }));
  if (!rank) return tl::unexpected(rank.error());
  const auto added =
      context.services.store.AddResult(context.job->id, *rank, context.request.body, context.now);
  if (!added) return Refuse(added);
  return Compact(nullptr);
}

}  // namespace

void AddZeusEndpoints(Endpoints& endpoints, boost::asio::thread_pool& pool) {
  endpoints.Add("POST", "/register_job", Access::kJob, RegisterJob);
  endpoints.Add("POST", "/register_rank/{job}", Access::kJob, RegisterRank);
  endpoints.AddWaiting(
      "GET", "/schedule/{job}", Access::kRead,
      [&pool, just_seen = std::make_shared<JustSeen>()](http::Call& call, Context context) {
        return AwaitSchedule(pool, *just_seen, call, std::move(context));
      },
      {.query = {"rank"}});
  endpoints.Add("POST", "/result/{job}", Access::kJob, TakeResult, {.body_bytes = kLargestResult});
}

}  // namespace perseus
