// The endpoints of tokens, for operators (`perseus token`) and for nodes that enroll (`perseus
// node`).
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/random_id.h"
#include "perseus/base/time_text.h"
#include "perseus/base/units.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/server/api/endpoints.h"

namespace perseus::server {
namespace {

using json_file::Node;
using json_file::ThrowAt;
using store::Scope;

constexpr int kDeepestToken = 3;
constexpr double kMaxDays = 36'500;
constexpr std::size_t kMaxPatterns = 1000;
constexpr std::size_t kMaxPatternBytes = 253;
// The lifetime of a node's own token. The node renews the token after half of this time.
constexpr Milliseconds kNodeTokenLasts = 24 * 3'600'000;
// How long the old secret stays valid after a renewal, because the answer with the new secret may
// be lost.
constexpr Milliseconds kOldSecretLasts = 300'000;
constexpr std::size_t kAttemptLetters = 64;

nlohmann::ordered_json TokenJson(const store::TokenRecord& token) {
  nlohmann::ordered_json json{
      {"id", token.id}, {"scope", store::ScopeOf(token)}, {"name", token.name}};
  if (token.scope == Scope::kJob) {
    json["job"] = token.job;
  } else if (!token.job.empty()) {
    json["jobs"] = SplitLines(token.job);
  }
  if (!token.nodes.empty()) json["nodes"] = SplitLines(token.nodes);
  if (!token.owner.empty()) json["owner"] = token.owner;
  if (!token.certificate.empty()) json["certificate"] = token.certificate;
  if (!token.issued_by.empty()) json["issued_by"] = token.issued_by;
  json["created"] = TimeText(token.created);
  if (token.expires != 0) json["expires"] = TimeText(token.expires);
  return json;
}

// Reads a name or a pattern: of a node, a job, an owner or a certificate.
std::string ReadPattern(const Node& node) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._*@: -";
  std::string text = node.Text();
  if (text.empty() || text.size() > kMaxPatternBytes ||
      text.find_first_not_of(kLetters) != std::string::npos) {
    ThrowAt(node.path,
            "is not a name or a pattern (up to {} letters, digits, '.', '_', '-', '@', "
            "':' and '*' for any text, such as gpu-*)",
            kMaxPatternBytes);
  }
  return text;
}

std::string ReadPatterns(const Node& list) {
  if (list.ListSize() > kMaxPatterns) {
    ThrowAt(list.path, "has more than {} patterns (use '*')", kMaxPatterns);
  }
  std::vector<std::string> patterns;
  for (std::size_t i = 0; i < list.ListSize(); ++i) patterns.push_back(ReadPattern(list[i]));
  return JoinLines(patterns);
}

// Checks the bounds of a token against its scope. A missing bound is an error if the token would
// give more rights than its creator may expect.
void CheckBounds(const store::TokenRecord& token) {
  using enum Scope;
  const auto is_one_of = [&token](std::initializer_list<Scope> scopes) {
    return std::ranges::find(scopes, token.scope) != scopes.end();
  };
  if (token.scope == kJob && token.job.empty()) {
    ThrowAt("job",
            "is the key of a job, for scope job only (give it with this scope, and with no other)");
  }
  if (!token.job.empty() && !is_one_of({kJob, kAgent, kJoin, kRead})) {
    ThrowAt("jobs", "is for the scopes agent, join and read (leave it out)");
  }
  if (is_one_of({kAgent, kJoin})) {
    if (token.nodes.empty() && (token.certificate.empty() || token.scope == kJoin)) {
      ThrowAt("nodes",
              "is missing (name the nodes that the token is good for, such as [\"gpu-*\"], "
              "or [\"*\"] for every node)");
    }
  } else if (!token.nodes.empty()) {
    ThrowAt("nodes", "is for the scopes agent and join (leave it out)");
  }
  if (token.scope == kMember && token.owner.empty()) {
    ThrowAt("owner", "is missing (name the team or person whose jobs the token is good for)");
  }
  if (!token.owner.empty() && !is_one_of({kMember, kJob, kRead})) {
    ThrowAt("owner", "is for the scopes member, job and read (leave it out)");
  }
  if (token.scope == kJoin && !token.certificate.empty()) {
    ThrowAt("certificate", "is not for scope join (use scope agent, which needs no enrollment)");
  }
}

store::TokenRecord ReadToken(const Node& node, Milliseconds now) {
  node.RequireObject(
      {"scope", "job", "jobs", "nodes", "owner", "certificate", "name", "expires_in_days"});
  store::TokenRecord token;
  const std::string scope = node.Member("scope").Text();
  token.scope = store::Parse<Scope>(scope);
  if (!token.scope) {
    ThrowAt("scope",
            "is wrong: {} is not a scope (expected operator, member, agent, job, read or join)",
            Excerpt(scope));
  }
  if (node.Has("job")) {
    token.job = job_planning::ReadJobKey(node.Member("job"));
    if (token.scope != Scope::kJob) {
      ThrowAt("job", "is the key of a job, for scope job only (use jobs with other scopes)");
    }
  }
  if (node.Has("jobs")) {
    if (token.scope == Scope::kJob) ThrowAt("jobs", "is not for scope job (use job)");
    token.job = ReadPatterns(node.Member("jobs"));
  }
  if (node.Has("nodes")) token.nodes = ReadPatterns(node.Member("nodes"));
  if (node.Has("owner")) token.owner = job_planning::ReadOwner(node.Member("owner"));
  if (node.Has("certificate")) token.certificate = ReadPattern(node.Member("certificate"));
  CheckBounds(token);
  if (node.Has("name")) {
    token.name = node.Member("name").Text();
    if (!IsTokenName(token.name)) {
      ThrowAt("name", "is not a name (one line of at most {} bytes)", kMaxTokenNameBytes);
    }
  }
  token.id = "t-" + RandomHex(4);
  token.created = now;
  if (node.Has("expires_in_days")) {
    token.expires = now + FromDays(node.Member("expires_in_days").Number(0, kMaxDays, "days"));
  }
  return token;
}

// Whether this is an operator token that never expires. Only an operator token can create more
// tokens. A token with a client certificate does not count, because the certificate may be
// unavailable.
bool IsLasting(const store::TokenRecord& token) {
  return token.scope == Scope::kOperator && token.expires == 0 && token.certificate.empty();
}

Answer<http::Response> Create(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(
      auto token, ReadBody(context.request.body, kDeepestToken,
                           [&](const Node& node) { return ReadToken(node, context.now); }));
  store::Store& store = context.services.store;
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, store.ListTokens());
  // Another replica may just have created the first token, and its notice has not arrived yet.
  if (context.identity.token.empty() && !tokens.empty()) {
    return Refuse(401, "A valid token is required", "tokens exist now, and the request has none",
                  "give a token of scope operator: `token_file` or PERSEUS_TOKEN_FILE, or over "
                  "HTTP the field Authorization: Bearer TOKEN");
  }
  // An operator behind the proxy can create tokens without a token.
  const bool needs_lasting = !context.identity.is_foreign && !IsLasting(token);
  if (needs_lasting && std::ranges::none_of(tokens, IsLasting)) {
    return Refuse(
        409, "The first token must be an operator token",
        "no operator token that never expires exists, and without one nobody could create tokens "
        "after the others expire",
        "first create a token of scope operator that never expires");
  }
  const std::string secret = NewSecret();
  // A token with a client certificate has no secret.
  if (token.certificate.empty()) token.hash = HashOfSecret(secret);
  PERSEUS_RETURN_IF_ERROR(store.AddToken(token, context.By()));
  // This replica has to know the token at once, because the client uses it next. Other replicas
  // receive a notice.
  context.services.rights.Put(token);
  auto json = TokenJson(token);
  if (token.certificate.empty()) json["token"] = secret;
  return JsonResponse(json, 201);
}

Answer<http::Response> ListTokens(const Context& context) {
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, context.services.store.ListTokens());
  auto list = nlohmann::ordered_json::array();
  for (const store::TokenRecord& token : tokens) list.push_back(TokenJson(token));
  return JsonResponse({{"tokens", std::move(list)}});
}

Answer<http::Response> Revoke(const Context& context) {
  const std::string& id = context.Path("token");
  store::Store& store = context.services.store;
  const auto deleted = store.DeleteToken(id, context.now, context.By());
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
  PERSEUS_RETURN_IF_ERROR(context.services.rights.Load(store));
  return JsonResponse({{"id", id}, {"revoked", true}});
}

http::Response EnrolledResponse(const store::TokenRecord& token, const std::string& secret,
                                const std::string& node, int status) {
  auto json = TokenJson(token);
  json["node"] = node;
  json["token"] = secret;
  json["renew_in_s"] = (kNodeTokenLasts / 2).count() / kMillisecondsPerSecond;
  return JsonResponse(json, status);
}

// Returns the hash of the attempt, which is a secret of the node (own_token.h). May be empty. The
// prefix distinguishes this hash from the hash of every token.
Answer<std::string> ReadAttempt(const std::string& body) {
  if (body.empty()) return std::string();
  return ReadBody(body, kDeepestToken, [](const Node& node) {
    node.RequireObject({"attempt"});
    if (!node.Has("attempt")) return std::string();
    const std::string attempt = node.Member("attempt").Text();
    const bool is_hexadecimal = attempt.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (attempt.size() != kAttemptLetters || !is_hexadecimal) {
      ThrowAt("attempt", "is not an attempt ({} random hexadecimal digits, in lower case)",
              kAttemptLetters);
    }
    return HashOfSecret("join:" + attempt);
  });
}

// Gives a node with this name its own token. A join token for several nodes gives each name only
// one token. So a stolen join token is useless for the name of a node that already has a token. A
// node that did not receive the answer repeats its attempt, which nobody else knows. The server
// accepts the repeated attempt until the node renews the token.
Answer<http::Response> Join(const Context& context, const std::string& node) {
  store::Store& store = context.services.store;
  const Identity& join = context.identity;
  const bool is_for_this_node = join.nodes == std::vector<std::string>{node};
  PERSEUS_ASSIGN_OR_RETURN(auto attempt, ReadAttempt(context.request.body));
  const std::string secret = NewSecret();
  const store::TokenRecord token{.id = "t-" + RandomHex(4),
                                 .hash = HashOfSecret(secret),
                                 .scope = Scope::kAgent,
                                 .job = JoinLines(join.jobs),
                                 .name = node,
                                 .created = context.now,
                                 .expires = context.now + kNodeTokenLasts,
                                 .nodes = node,
                                 .previous_hash = std::move(attempt),
                                 .issued_by = join.token};
  PERSEUS_ASSIGN_OR_RETURN(const auto other,
                           store.JoinNode(token, !is_for_this_node, context.By()));
  if (other) {
    return Refuse(409, "The node has a token",
                  fmt::format("token {} is the token of node {} until {}", other->id, node,
                              TimeText(other->expires)),
                  fmt::format("perseus token revoke {}, or use a join token for this node only "
                              "(`node = {}`)",
                              other->id, node));
  }
  // If the new token replaced another token, the other token ends when the tokens are read again.
  context.services.rights.Put(token);
  return EnrolledResponse(token, secret, node, 201);
}

Answer<http::Response> Renew(const Context& context, const std::string& node) {
  store::Store& store = context.services.store;
  const Identity& identity = context.identity;
  PERSEUS_ASSIGN_OR_RETURN(const auto tokens, store.ListTokensOfNode(node));
  const auto own = std::ranges::find(tokens, identity.token, &store::TokenRecord::id);
  if (own == tokens.end() || own->issued_by.empty() || identity.presented.empty()) {
    return Refuse(403, "The token has no right to this",
                  "only the token that a node got with a join token can be renewed",
                  "use such a token, or create another one (perseus token create)");
  }
  const std::string secret = NewSecret();
  store::TokenRecord token = *own;
  token.hash = HashOfSecret(secret);
  token.expires = context.now + kNodeTokenLasts;
  token.previous_hash = identity.presented;
  token.previous_until = std::min(own->expires, context.now + kOldSecretLasts);
  PERSEUS_ASSIGN_OR_RETURN(const auto renewed,
                           store.RenewToken(token, identity.presented, context.now, context.By()));
  if (!renewed) return tl::unexpected<Refusal>(TokenIsGone());
  // Read the token again. If two renewals run at the same time, the store decides which of them
  // counts.
  PERSEUS_RETURN_IF_ERROR(context.services.rights.Load(store));
  return EnrolledResponse(token, secret, node, 200);
}

Answer<http::Response> Enroll(const Context& context) {
  const std::string& node = context.Path("node");
  PERSEUS_RETURN_IF_ERROR(CheckNodeName(node));
  if (context.identity.role == Identity::Role::kJoin) return Join(context, node);
  return Renew(context, node);
}

Answer<http::Response> WhoAmI(const Context& context) {
  const Identity& identity = context.identity;
  const store::Author author = context.By();
  nlohmann::ordered_json json{
      {"id", author.id}, {"name", author.name}, {"scope", store::RoleOf(author)}};
  if (!identity.owners.empty()) json["owners"] = identity.owners;
  if (!identity.nodes.empty()) json["nodes"] = identity.nodes;
  if (!identity.jobs.empty()) json["jobs"] = identity.jobs;
  if (identity.expires != 0) json["expires"] = TimeText(identity.expires);
  return JsonResponse(json);
}

}  // namespace

void AddTokenEndpoints(Endpoints& endpoints) {
  endpoints.AddAtOnce("GET", "/v1/whoami", Access::kSelf, WhoAmI);
  endpoints.Add("POST", "/v1/tokens", Access::kOperator, Create);
  endpoints.Add("GET", "/v1/tokens", Access::kOperator, ListTokens);
  endpoints.Add("DELETE", "/v1/tokens/{token}", Access::kOperator, Revoke);
  endpoints.Add("POST", "/v1/nodes/{node}/token", Access::kEnroll, Enroll);
}

}  // namespace perseus::server
