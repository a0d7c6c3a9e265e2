#include <fmt/format.h>

#include <vector>

#include "bench/server_load/fleet.h"
#include "bench/server_load/plain_server.h"
#include "bench/server_load/scenarios.h"

namespace perseus::load {
namespace {

constexpr int kPlanningStages = 8;
// With 8 stages, forward and backward, a profile has a thousand rows.
constexpr int kPlanningClocks = 63;
constexpr int kPlanningAtOnce = 32;
constexpr int kDistinctProfiles = 50;

asio::awaitable<std::vector<std::string>> RegisterMany(asio::io_context& loop,
                                                       const ServerProcess& server, int jobs,
                                                       int microbatches) {
  std::vector<std::string> ids(static_cast<std::size_t>(jobs));
  const auto enroll = [&](Connection& connection, int i) -> asio::awaitable<void> {
    const std::string body =
        JobBody(fmt::format("job-{}", i),
                {.pipelines = 2, .stages = kPlanningStages, .microbatches = microbatches});
    const std::string answer = co_await connection.Must("POST", "/v1/jobs", body);
    ids[static_cast<std::size_t>(i)] = FieldOf(answer, "id");
  };
  co_await ForEach(loop, jobs, kPlanningAtOnce, enroll, server.endpoint());
  co_return ids;
}

std::vector<std::string> Profiles(int count) {
  std::vector<std::string> profiles;
  for (int i = 0; i < count; ++i) {
    profiles.push_back(
        SyntheticCsv(kPlanningStages, kPlanningClocks, static_cast<std::uint64_t>(i) + 1));
  }
  return profiles;
}

// Uploads the profile of each job. Returns how long all uploads took.
asio::awaitable<double> UploadAll(asio::io_context& loop, const asio::ip::tcp::endpoint& server,
                                  const std::vector<std::string>& ids,
                                  const std::vector<std::string>& profiles) {
  const auto begin = Clock::now();
  const auto upload = [&](Connection& connection, int i) -> asio::awaitable<void> {
    const auto index = static_cast<std::size_t>(i);
    const std::string target = fmt::format("/v1/jobs/{}/profile", ids[index]);
    co_await connection.Must("PUT", target, profiles[index % profiles.size()]);
  };
  co_await ForEach(loop, static_cast<int>(ids.size()), kPlanningAtOnce, upload, server);
  co_return SecondsSince(begin);
}

// Waits until all jobs are planned. Polls one job after the other, so that the polling costs the
// server almost nothing.
asio::awaitable<void> UntilPlanned(asio::io_context& loop, const ServerProcess& server,
                                   const std::vector<std::string>& ids) {
  Connection connection(loop, server.endpoint());
  for (const std::string& id : ids) {
    const std::string target = fmt::format("/v1/jobs/{}/assignments?limit=1", id);
    for (;;) {
      const std::string assignments = co_await connection.Must("GET", target);
      if (assignments.find("\"version\":") != std::string::npos) break;
      co_await Sleep(0.05);
    }
  }
}

asio::awaitable<void> RunUploads(asio::io_context& loop, const ServerProcess& server,
                                 const Options& options) {
  const auto profiles = Profiles(kDistinctProfiles);
  const auto ids = co_await RegisterMany(loop, server, options.uploads, options.microbatches);
  const Usage before = server.Measure();
  const double took = co_await UploadAll(loop, server.endpoint(), ids, profiles);
  const Usage after = server.Measure();
  PlainServer plain("{}");
  const double plain_s = co_await UploadAll(loop, plain.endpoint(), ids, profiles);
  fmt::print(
      "{} uploads of {} kB, no error: {:.2f} s, {:.0f} a second ({:.1f} ms of CPU each, planning "
      "beside it); to a bare server {:.2f} s; load {:.1f}\n{}\n",
      ids.size(), profiles.front().size() / 1000, took, static_cast<double>(ids.size()) / took,
      1e3 * (after.cpu_s - before.cpu_s) / static_cast<double>(ids.size()), plain_s, LoadAverage(),
      Describe(after));
}

asio::awaitable<void> RunPlans(asio::io_context& loop, const ServerProcess& server,
                               const Options& options) {
  const auto profiles = Profiles(options.jobs);
  const auto ids = co_await RegisterMany(loop, server, options.jobs, options.microbatches);
  const Usage before = server.Measure();
  const auto begin = Clock::now();
  const double uploaded = co_await UploadAll(loop, server.endpoint(), ids, profiles);
  co_await UntilPlanned(loop, server, ids);
  const double first = SecondsSince(begin);
  const Usage after = server.Measure();
  fmt::print(
      "{} jobs of {} x {}: uploaded in {:.2f} s, all have assignments after {:.2f} s ({:.2f} s of "
      "CPU), "
      "load {:.1f}; {}\n",
      ids.size(), kPlanningStages, options.microbatches, uploaded, first,
      after.cpu_s - before.cpu_s, LoadAverage(), Describe(after));
}

}  // namespace

void MeasureUploads(const ServerProcess& server, const Options& options) {
  RunOnLoop([&](asio::io_context& loop) { return RunUploads(loop, server, options); });
}

void MeasurePlans(const ServerProcess& server, const Options& options) {
  RunOnLoop([&](asio::io_context& loop) { return RunPlans(loop, server, options); });
}

}  // namespace perseus::load
