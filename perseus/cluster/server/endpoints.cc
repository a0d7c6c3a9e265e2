#include "perseus/cluster/server/endpoints.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/cluster/http/offload.h"

namespace perseus::server {
namespace {

constexpr store::Milliseconds kSecond = 1000;

// Identifies the caller, checks the rights, and finds the job if the path has one.
Answer<Context> Admit(const Services& services, const http::Request& request,
                      const std::map<std::string, std::string, std::less<>>& path, Access access) {
  const store::Milliseconds now = services.now();
  Context context{services, request, path, Principal(), std::nullopt, now};
  if (access == Access::kPublic) return context;
  auto principal = services.rights.Identify(request, now);
  if (!principal) return tl::unexpected(principal.error());
  context.principal = *std::move(principal);
  const auto id = path.find("job");
  if (id == path.end()) {
    // The path names no job. The endpoint finds the job and checks the rights of a token of scope
    // job.
    const bool is_of_a_job = access == Access::kRead || access == Access::kJob;
    if (is_of_a_job && context.principal.scope == Principal::Scope::kJob) return context;
    if (auto may = Rights::Check(context.principal, access, ""); !may) {
      return tl::unexpected(may.error());
    }
    return context;
  }
  auto job = services.store.FindJob(id->second);
  if (!job) return Refuse(job);
  // A missing job belongs to no token, so the holder of a job's token cannot find out which jobs
  // exist.
  if (auto may = Rights::Check(context.principal, access, *job ? (*job)->key : ""); !may) {
    return tl::unexpected(may.error());
  }
  if (!*job) {
    return Refuse(404, "There is no such job",
                  fmt::format("no job has the id or key {}", Excerpt(id->second)),
                  "perseus jobs --all lists the jobs, perseus job register registers one");
  }
  context.job = **std::move(job);
  return context;
}

}  // namespace

http::Response Endpoints::Answered(const http::Call& call, Access access,
                                   const Endpoint& endpoint) const {
  auto context = Admit(services_, call.request, call.path, access);
  if (!context) return http::ProblemResponse(context.error());
  auto response = endpoint(*context);
  if (!response) return http::ProblemResponse(response.error());
  return *std::move(response);
}

void Endpoints::AddAtOnce(std::string method, std::string pattern, Access access,
                          Endpoint endpoint) {
  router_.Add(std::move(method), std::move(pattern),
              [this, access, endpoint = std::move(endpoint)](
                  http::Call& call) -> boost::asio::awaitable<http::Response> {
                co_return Answered(call, access, endpoint);
              });
}

void Endpoints::Add(std::string method, std::string pattern, Access access, Endpoint endpoint,
                    http::Takes takes) {
  router_.Add(
      std::move(method), std::move(pattern),
      [this, access,
       endpoint = std::move(endpoint)](http::Call& call) -> boost::asio::awaitable<http::Response> {
        if (auto ready = services_.is_ready(); !ready) {
          co_return http::ProblemResponse(ready.error());
        }
        const auto answer = [&] { return Answered(call, access, endpoint); };
        http::Response response = co_await http::Offload(pool_, answer);
        co_return response;
      },
      std::move(takes));
}

void Endpoints::AddWaiting(std::string method, std::string pattern, Access access, Waiting endpoint,
                           http::Takes takes) {
  router_.Add(
      std::move(method), std::move(pattern),
      [this, access,
       endpoint = std::move(endpoint)](http::Call& call) -> boost::asio::awaitable<http::Response> {
        if (auto ready = services_.is_ready(); !ready) {
          co_return http::ProblemResponse(ready.error());
        }
        const auto admit = [&] { return Admit(services_, call.request, call.path, access); };
        Answer<Context> context = co_await http::Offload(pool_, admit);
        if (!context) co_return http::ProblemResponse(context.error());
        http::Response response = co_await endpoint(call, *context);
        co_return response;
      },
      std::move(takes));
}

Answer<int> ReadLimit(const http::Request& request, int otherwise, int most) {
  const auto found = request.query.find("limit");
  if (found == request.query.end()) return otherwise;
  const std::string& text = found->second;
  int limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc() || end != text.data() + text.size() || limit < 1 || limit > most) {
    return Refuse(400, "The request is wrong", fmt::format("{} is not a limit", Excerpt(text)),
                  fmt::format("a whole number from 1 to {}", most), "?limit");
  }
  return limit;
}

std::string TimeText(store::Milliseconds time) {
  const std::chrono::sys_seconds seconds{std::chrono::seconds(time / kSecond)};
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), time % kSecond);
}

}  // namespace perseus::server
