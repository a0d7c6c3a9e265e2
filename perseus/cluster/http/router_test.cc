#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/cluster/http/server.h"

namespace perseus::http {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

Router SomeRoutes() {
  const Handler nothing = [](Call&) -> asio::awaitable<Response> { co_return Response(); };
  Router router;
  router.Add("GET", "/", nothing);
  router.Add("GET", "/v1/jobs", nothing);
  router.Add("POST", "/v1/jobs", nothing);
  router.Add("GET", "/v1/jobs/latest", nothing);
  router.Add("GET", "/v1/jobs/{job}", nothing);
  router.Add("PUT", "/v1/jobs/{job}/stragglers/{pipeline}", nothing);
  return router;
}

struct Row {
  const char* method;
  const char* path;
  bool is_found;
  const char* pattern;
  const char* allow;
};

TEST(Router, FindsItsRoutes) {
  const Router router = SomeRoutes();
  const Row rows[] = {
      {"GET", "/", true, "/", "GET, HEAD"},
      {"GET", "/v1/jobs", true, "/v1/jobs", "GET, HEAD, POST"},
      {"HEAD", "/v1/jobs", true, "/v1/jobs", "GET, HEAD, POST"},
      {"POST", "/v1/jobs", true, "/v1/jobs", "GET, HEAD, POST"},
      {"DELETE", "/v1/jobs", false, "/v1/jobs", "GET, HEAD, POST"},
      {"get", "/v1/jobs", false, "/v1/jobs", "GET, HEAD, POST"},
      {"GET", "/v1/jobs/latest", true, "/v1/jobs/latest", "GET, HEAD"},
      {"GET", "/v1/jobs/j-1", true, "/v1/jobs/{job}", "GET, HEAD"},
      {"HEAD", "/v1/jobs/j/stragglers/1", false, "/v1/jobs/{job}/stragglers/{pipeline}", "PUT"},
      {"GET", "/v1/jobs/", false, "", ""},
      {"GET", "/v1/jobs/j-1/", false, "", ""},
      {"GET", "//v1/jobs", false, "", ""},
      {"GET", "/v1//jobs", false, "", ""},
      {"GET", "/v1/job%73", true, "/v1/jobs", "GET, HEAD, POST"},
      {"GET", "/v1%2Fjobs", false, "", ""},
      {"GET", "/v1/jobs/%zz", false, "", ""},
      {"GET", "/v1/jobs/..", true, "/v1/jobs/{job}", "GET, HEAD"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.method) + " " + row.path);
    const Router::Match match = router.Find(row.method, row.path);
    EXPECT_EQ(match.handler != nullptr, row.is_found);
    EXPECT_EQ(match.pattern, row.pattern);
    EXPECT_EQ(match.allow, row.allow);
  }
}

TEST(Router, ReturnsTheParametersOfThePath) {
  const Router router = SomeRoutes();
  EXPECT_THAT(router.Find("PUT", "/v1/jobs/a%2Fb%20c/stragglers/1").path,
              ElementsAre(Pair("job", "a/b c"), Pair("pipeline", "1")));
  EXPECT_THAT(router.Find("GET", "/v1/jobs/latest").path, IsEmpty());
}

TEST(Router, ListsItsRoutes) {
  EXPECT_THAT(SomeRoutes().Routes(),
              ElementsAre("GET /", "GET /v1/jobs", "GET /v1/jobs/latest", "GET /v1/jobs/{job}",
                          "POST /v1/jobs", "PUT /v1/jobs/{job}/stragglers/{pipeline}"));
}

}  // namespace
}  // namespace perseus::http
