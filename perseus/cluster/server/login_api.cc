// How people log in, and who a caller is.
#include "perseus/cluster/server/endpoints.h"
#include "perseus/cluster/server/foreign_identities.h"

namespace perseus::server {
namespace {

using nlohmann::ordered_json;

// Public: a client asks this before it has a token. Empty if the server has no login.
Answer<http::Response> ShowLogin(const Context& context) {
  if (context.services.foreign != nullptr) {
    for (const issuers::IssuerSettings& issuer : context.services.foreign->settings().issuers) {
      if (!issuer.login) continue;
      ordered_json json{{"issuer", issuer.url},
                        {"client_id", issuer.login->client},
                        {"scopes", issuer.login->scopes},
                        {"token", issuer.login->token}};
      if (!issuer.login->resource.empty()) json["resource"] = issuer.login->resource;
      return JsonResponse(json);
    }
  }
  return JsonResponse(ordered_json::object());
}

Answer<http::Response> WhoAmI(const Context& context) {
  const Identity& identity = context.identity;
  const store::Author author = context.By();
  ordered_json json{{"id", author.id}, {"name", author.name}, {"scope", author.role}};
  if (!identity.owners.empty()) json["owners"] = identity.owners;
  if (!identity.nodes.empty()) json["nodes"] = identity.nodes;
  if (!identity.jobs.empty()) json["jobs"] = identity.jobs;
  if (identity.expires != 0) json["expires"] = TimeText(identity.expires);
  return JsonResponse(json);
}

}  // namespace

void AddLoginEndpoints(Endpoints& endpoints) {
  endpoints.AddAtOnce("GET", "/v1/login", Access::kPublic, ShowLogin);
  endpoints.AddAtOnce("GET", "/v1/whoami", Access::kSelf, WhoAmI);
}

}  // namespace perseus::server
