#include "perseus/cluster/server/api/endpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/number.h"
#include "perseus/base/units.h"
#include "perseus/cluster/http/offload.h"
#include "perseus/cluster/http/target.h"
#include "perseus/cluster/server/identity/foreign_identities.h"

namespace perseus::server {
namespace {

// Returns the reason for a change. It is in the header field Perseus-Reason, as percent-encoded
// UTF-8.
Answer<std::string> ReasonOf(const http::Request& request) {
  constexpr std::size_t kMostBytes = 1000;
  const std::string_view field = request.Field("perseus-reason");
  if (field.empty()) return std::string();
  auto reason = http::PercentDecoded(field);
  if (reason && reason->size() <= kMostBytes && IsPrintable(*reason)) return *std::move(reason);
  return Refuse(400, "The request is wrong", "the field Perseus-Reason is not a reason",
                fmt::format("one line of at most {} bytes of UTF-8, percent-encoded", kMostBytes));
}

// Finds the identity of the caller. Limits how many requests fail here.
boost::asio::awaitable<Answer<Identity>> FindIdentity(const Services& services,
                                                      http::Request& request, std::string_view node,
                                                      Access access, Milliseconds now) {
  constexpr std::string_view kMungePrefix = "Munge ";
  const std::string_view field = request.Field("authorization");
  std::optional<Answer<Identity>> person;
  if (services.foreign != nullptr) person = services.foreign->FromProxy(request, now);
  const bool is_munge = !person && services.foreign != nullptr && access == Access::kEnroll &&
                        field.starts_with(kMungePrefix);
  if (is_munge) {
    // Among the requests that a caller without rights can make, this check takes the most time.
    if (auto may = services.limits.SpendUnknown(request); !may) {
      co_return tl::unexpected(may.error());
    }
    std::string credential(field.substr(kMungePrefix.size()));
    Answer<Identity> checked =
        co_await services.foreign->CheckMunge(std::move(credential), std::string(node), now);
    co_return checked;
  }
  Answer<Identity> identity = person ? *std::move(person) : services.rights.Identify(request, now);
  if (!identity) {
    if (auto may = services.limits.SpendUnknown(request); !may) {
      co_return tl::unexpected(may.error());
    }
  }
  co_return identity;
}

// Identifies the caller, and checks the number of the caller's requests. Does not block.
boost::asio::awaitable<Answer<Context>> Identify(const Services& services, http::Request& request,
                                                 const http::Fields& path, Access access) {
  const Milliseconds now = services.now();
  Context context{services, request, path, Identity(), "", std::nullopt, now};
  if (access == Access::kPublic) co_return context;
  Answer<Identity> identity =
      co_await FindIdentity(services, request, http::ValueOf(path, "node"), access, now);
  if (!identity) co_return tl::unexpected(identity.error());
  request.identity = identity->Text();
  context.identity = *std::move(identity);
  const std::string_view node = access == Access::kNode ? http::ValueOf(path, "node") : "";
  if (auto may = services.limits.Spend(context.identity, node, request); !may) {
    co_return tl::unexpected(may.error());
  }
  auto reason = ReasonOf(request);
  if (!reason) co_return tl::unexpected(reason.error());
  context.reason = *std::move(reason);
  co_return context;
}

// Checks the rights, and finds the job if the path has one. Most endpoints rely on this check of
// rights alone. Endpoints that find the job in the body check the rights again.
Answer<Context> Admit(Context context, Access access) {
  if (access == Access::kPublic) return context;
  const Services& services = context.services;
  const auto& path = context.path;
  Resource resource{.node = http::ValueOf(path, "node")};
  const auto id = path.find("job");
  if (id == path.end()) {
    // The path names no job. The endpoint finds the job and checks the bounds.
    const bool is_of_a_job = access == Access::kRead || access == Access::kJob;
    if (is_of_a_job && context.identity.IsBoundToJobs()) return context;
    PERSEUS_RETURN_IF_ERROR(Allow(context.identity, access, resource));
    return context;
  }
  PERSEUS_ASSIGN_OR_RETURN(auto job, services.store.FindJob(id->second));
  // A missing job has no owner. So for a missing job, a caller with a bound token gets the same
  // answer as for another owner's job. The caller cannot find out which jobs exist.
  resource.job = job ? job->key : id->second;
  if (job) resource.owner = job->owner;
  PERSEUS_RETURN_IF_ERROR(Allow(context.identity, access, resource));
  if (!job) {
    return Refuse(404, "There is no such job",
                  fmt::format("no job has the id or key {}", Excerpt(id->second)),
                  "perseus jobs --all lists the jobs, perseus job register registers one");
  }
  const std::string& method = context.request.method;
  if (access == Access::kJob && method != "GET" && method != "HEAD") {
    PERSEUS_RETURN_IF_ERROR(services.limits.SpendOfJob(job->id));
  }
  context.job = *std::move(job);
  return context;
}

http::Response Answered(Context context, Access access, const Endpoint& endpoint) {
  auto admitted = Admit(std::move(context), access);
  if (!admitted) return http::ProblemResponse(admitted.error());
  Place place;
  if (admitted->request.body.size() > kLargeBodyBytes) {
    Places& bodies = admitted->services.large_bodies;
    bodies.acquire();
    place.reset(&bodies);
  }
  auto response = endpoint(*admitted);
  if (!response) return http::ProblemResponse(response.error());
  return *std::move(response);
}

}  // namespace

void Endpoints::AddRoute(std::string method, std::string pattern, Access access,
                         bool needs_database, Waiting run, http::Takes takes) {
  router_.Add(
      std::move(method), std::move(pattern),
      [this, access, needs_database,
       run = std::move(run)](http::Call& call) -> boost::asio::awaitable<http::Response> {
        const Answer<void> ready = needs_database ? services_.is_ready() : Answer<void>();
        if (!ready) co_return http::ProblemResponse(ready.error());
        Answer<Context> context = co_await Identify(services_, call.request, call.path, access);
        if (!context) co_return http::ProblemResponse(context.error());
        http::Response response = co_await run(call, *std::move(context));
        co_return response;
      },
      std::move(takes));
}

void Endpoints::AddAtOnce(std::string method, std::string pattern, Access access,
                          Endpoint endpoint) {
  const auto run = [access, endpoint = std::move(endpoint)](
                       http::Call&, Context context) -> boost::asio::awaitable<http::Response> {
    co_return Answered(std::move(context), access, endpoint);
  };
  AddRoute(std::move(method), std::move(pattern), access, false, run, {});
}

void Endpoints::Add(std::string method, std::string pattern, Access access, Endpoint endpoint,
                    http::Takes takes) {
  const auto run = [this, access, endpoint = std::move(endpoint)](
                       http::Call&, Context context) -> boost::asio::awaitable<http::Response> {
    if (auto enters = services_.waiting.Enter(access); !enters) {
      co_return http::ProblemResponse(enters.error());
    }
    const auto entered = WaitingRequests::Clock::now();
    const auto answer = [&] {
      services_.waiting.Begin(entered);
      return Answered(std::move(context), access, endpoint);
    };
    http::Response response = co_await http::Offload(pool_, answer);
    co_return response;
  };
  AddRoute(std::move(method), std::move(pattern), access, true, run, std::move(takes));
}

void Endpoints::AddWaiting(std::string method, std::string pattern, Access access, Waiting endpoint,
                           http::Takes takes) {
  const auto run = [this, access, endpoint = std::move(endpoint)](
                       http::Call& call,
                       Context identified) -> boost::asio::awaitable<http::Response> {
    const auto admit = [&] { return Admit(std::move(identified), access); };
    Answer<Context> context = co_await http::Offload(pool_, admit);
    if (!context) co_return http::ProblemResponse(context.error());
    http::Response response = co_await endpoint(call, *context);
    co_return response;
  };
  AddRoute(std::move(method), std::move(pattern), access, true, run, std::move(takes));
}

http::Problem TokenIsGone() {
  return {.status = 401,
          .title = "A valid token is required",
          .detail = "the token was revoked or has expired",
          .pointer = "",
          .remedy = "use another token"};
}

store::Author Context::By() const {
  return {.id = identity.token,
          .name = identity.token.empty() && identity.name.empty() ? "anonymous" : identity.name,
          .role = identity.role,
          .peer = request.peer,
          .trace = request.trace,
          .reason = reason};
}

Answer<int> ReadLimit(const http::Request& request, int otherwise, int most) {
  const auto found = request.query.find("limit");
  if (found == request.query.end()) return otherwise;
  const std::string& text = found->second;
  const auto limit = ParseNumber<int>(text);
  if (!limit || *limit < 1 || *limit > most) {
    return Refuse(400, "The request is wrong", fmt::format("{} is not a limit", Excerpt(text)),
                  fmt::format("a whole number from 1 to {}", most), "?limit");
  }
  return *limit;
}

double SecondsSince(Milliseconds time, Milliseconds now) {
  return ToSeconds(std::max<Milliseconds>(0, now - time));
}

}  // namespace perseus::server
