// The endpoints of health, readiness, metrics, and the OpenAPI document.
#include "perseus/cluster/server/api/endpoints.h"

namespace perseus::server {
namespace {

Answer<http::Response> Health(const Context&) { return JsonResponse({{"status", "alive"}}); }

Answer<http::Response> Ready(const Context& context) {
  PERSEUS_RETURN_IF_ERROR(context.services.readiness());
  return JsonResponse({{"status", "ready"}});
}

Answer<http::Response> Metrics(const Context& context) {
  http::Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.services.metrics();
  return response;
}

Answer<http::Response> OpenApi(const Context&) {
  http::Response response;
  response.content_type = "application/yaml";
  response.body = OpenApiDocument();
  return response;
}

}  // namespace

void AddStatusEndpoints(Endpoints& endpoints) {
  endpoints.AddAtOnce("GET", "/healthz", Access::kPublic, Health);
  endpoints.AddAtOnce("GET", "/readyz", Access::kPublic, Ready);
  // These endpoints also answer while the database is unavailable, because they report this state.
  endpoints.AddAtOnce("GET", "/metrics", Access::kReadFleet, Metrics);
  endpoints.AddAtOnce("GET", "/openapi.yaml", Access::kPublic, OpenApi);
}

}  // namespace perseus::server
