// Tokens, for operators (`perseus token`).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "perseus/base/random_id.h"
#include "perseus/base/units.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/endpoints.h"

namespace perseus::server {
namespace {

using json_file::Node;
using json_file::ThrowAt;

constexpr int kDeepestToken = 2;
constexpr double kMaxDays = 36'500;

nlohmann::ordered_json TokenJson(const store::TokenRecord& token) {
  nlohmann::ordered_json json{{"id", token.id}, {"scope", token.scope}, {"name", token.name}};
  if (!token.job.empty()) json["job"] = token.job;
  json["created"] = TimeText(token.created);
  if (token.expires != 0) json["expires"] = TimeText(token.expires);
  return json;
}

store::TokenRecord ReadToken(const Node& node, store::Milliseconds now) {
  constexpr std::array<std::string_view, 4> kKeys{"scope", "job", "name", "expires_in_days"};
  node.RequireObject(kKeys);
  store::TokenRecord token;
  token.scope = node.Member("scope").Text();
  if (const auto scope = ParseScope(token.scope); !scope) {
    ThrowAt("scope", "is wrong: {}", scope.error().message);
  }
  if (node.Has("job")) token.job = job_planning::ReadJobKey(node.Member("job"));
  if ((token.scope == "job") != !token.job.empty()) {
    ThrowAt("job",
            "is the key of a job, for scope job only (give it with this scope, and with no other)");
  }
  if (node.Has("name")) token.name = node.Member("name").Text();
  token.id = "t-" + RandomHex(4);
  token.created = now;
  if (node.Has("expires_in_days")) {
    const double days = node.Member("expires_in_days").Number(0, kMaxDays, "days");
    token.expires = now + static_cast<store::Milliseconds>(days * kMillisecondsPerDay);
  }
  return token;
}

// Only an operator token can create more tokens. This one never expires.
bool IsLasting(const store::TokenRecord& token) {
  return token.scope == "operator" && token.expires == 0;
}

Answer<http::Response> Create(const Context& context) {
  auto token = ReadBody(context.request.body, kDeepestToken,
                        [&](const Node& node) { return ReadToken(node, context.now); });
  if (!token) return tl::unexpected(token.error());
  store::Store& store = context.services.store;
  const auto tokens = store.ListTokens();
  if (!tokens) return Refuse(tokens);
  // Another replica may have created the first token just now, without a notice yet.
  if (context.principal.token.empty() && !tokens->empty()) {
    return Refuse(401, "A valid token is required", "tokens exist now, and the request has none",
                  "send the field Authorization: Bearer TOKEN with a token of scope operator");
  }
  if (!IsLasting(*token) && std::ranges::none_of(*tokens, IsLasting)) {
    return Refuse(
        409, "The first token must be an operator token",
        "no operator token that never expires exists, and without one nobody could create tokens "
        "after the others expire",
        "first create a token of scope operator that never expires");
  }
  const std::string secret = NewSecret();
  token->hash = HashOfSecret(secret);
  if (auto added = store.AddToken(*token); !added) return Refuse(added);
  // The client uses the token next. Other replicas receive a notice.
  if (auto loaded = context.services.rights.Load(store); !loaded) return Refuse(loaded);
  auto json = TokenJson(*token);
  json["token"] = secret;
  return JsonResponse(json, 201);
}

Answer<http::Response> ListTokens(const Context& context) {
  const auto tokens = context.services.store.ListTokens();
  if (!tokens) return Refuse(tokens);
  auto list = nlohmann::ordered_json::array();
  for (const store::TokenRecord& token : *tokens) list.push_back(TokenJson(token));
  return JsonResponse({{"tokens", std::move(list)}});
}

Answer<http::Response> Revoke(const Context& context) {
  const std::string& id = context.Path("token");
  store::Store& store = context.services.store;
  const auto deleted = store.DeleteToken(id);
  if (!deleted) {
    http::Problem problem = ProblemOf(deleted.error());
    if (deleted.error().kind == ErrorKind::kUnreachable) {
      problem.status = 409;
      problem.title = "This is the last operator token";
    }
    return tl::unexpected(std::move(problem));
  }
  if (!*deleted) {
    return Refuse(404, "There is no such token", fmt::format("no token has the id {}", id),
                  "perseus token list shows the tokens");
  }
  if (auto loaded = context.services.rights.Load(store); !loaded) return Refuse(loaded);
  return JsonResponse({{"id", id}, {"revoked", true}});
}

}  // namespace

void AddTokenEndpoints(Endpoints& endpoints) {
  endpoints.Add("POST", "/v1/tokens", Access::kOperator, Create);
  endpoints.Add("GET", "/v1/tokens", Access::kOperator, ListTokens);
  endpoints.Add("DELETE", "/v1/tokens/{token}", Access::kOperator, Revoke);
}

}  // namespace perseus::server
