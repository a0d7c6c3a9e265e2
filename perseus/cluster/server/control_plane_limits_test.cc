// Tests the limits of requests.
#include "tests/support/control_plane_fixture.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class LimitedTest : public ControlPlaneTest {
 protected:
  explicit LimitedTest(double requests_per_second = 1)
      : ControlPlaneTest({.requests_per_second = requests_per_second,
                          .bytes_per_second = 0,
                          .jobs = 3,
                          .jobs_of_owner = 1,
                          .streams_of_token = 1}) {}
  static std::string JobOf(const std::string& key, const std::string& owner) {
    json body = json::parse(JobBody(key));
    if (!owner.empty()) body["owner"] = owner;
    return body.dump();
  }
  static std::string RetryAfter(const http::Response& response) {
    for (const auto& [name, value] : response.fields) {
      if (name == "retry-after") return value;
    }
    return "";
  }
};

TEST_F(LimitedTest, JobsHaveQuotas) {
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("a", "ann")).status, 201);
  const auto second = Send("POST", "/v1/jobs", JobOf("b", "ann"));
  EXPECT_EQ(second.status, 422);
  EXPECT_THAT(json::parse(second.body)["detail"],
              "\"ann\" has 1 running jobs, which is the limit of an owner");
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("a", "ann")).status, 200) << "it exists";
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("b", "bob")).status, 201);
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("c", "")).status, 201);
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("d", "")).status, 422);
  EXPECT_EQ(Send("POST", "/v1/jobs/a/end", "{}").status, 200);
  EXPECT_EQ(Send("POST", "/v1/jobs", JobOf("d", "ann")).status, 201);
}

// The limit is one request, and then one request every 100 s. So the speed of the test does not
// matter.
class OneRequestTest : public LimitedTest {
 protected:
  OneRequestTest() : LimitedTest(0.01) {}
};

TEST_F(OneRequestTest, ACallerThatSendsTooMuchIsToldWhenToComeAgain) {
  int refused = 0;
  for (int i = 0; i < 15; ++i) {
    const auto response = Send("GET", "/v1/jobs");
    if (response.status != 429) continue;
    ++refused;
    EXPECT_THAT(RetryAfter(response), testing::MatchesRegex("100|[1-9][0-9]?")) << response.body;
  }
  EXPECT_GE(refused, 1);
  // Each node is a separate caller, and requests for the server's health have no limit.
  EXPECT_NE(Send("POST", "/v1/nodes/n0/reports", R"({"jobs": []})").status, 429);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(Send("GET", "/healthz").status, 200);
}

TEST_F(LimitedTest, ATokenHasALimitOfStreams) {
  ASSERT_EQ(Send("POST", "/v1/jobs", JobOf("a", "")).status, 201);
  Attach("n0", "a", 0);
  NodeStream first(url(), "n0");
  ASSERT_TRUE(Comes([&] {
    return Send("GET", "/metrics").body.find("perseus_server_streams 1") != std::string::npos;
  }));
  const auto refused = Send("GET", "/v1/nodes/n2/events?instance=abcdef0123456789");
  EXPECT_EQ(refused.status, 429);
  EXPECT_THAT(refused.body, HasSubstr("`max_streams_of_token`"));
}

TEST_F(ControlPlaneTest, NamesThePowerCapThatIsPossible) {
  PlanJob("run");
  const auto refused = Send("GET", "/v1/jobs/run/plans/power-cap-1w");
  EXPECT_EQ(refused.status, 422);
  const std::string detail = json::parse(refused.body)["detail"];
  EXPECT_THAT(json::parse(refused.body)["remedy"].get<std::string>(),
              HasSubstr("allow more, or use fewer GPUs"));
  const std::string mark = "the least is ";
  const std::size_t at = detail.find(mark);
  ASSERT_NE(at, std::string::npos) << detail;
  std::string least = detail.substr(at + mark.size());
  least.resize(least.find(' '));
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/power-cap-" + least + "w").status, 200) << detail;
}

TEST_F(ControlPlaneTest, AClientThatLeftIsNoFailure) {
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("run")).status, 201);
  const auto is_counted = [&] {
    return Send("GET", "/metrics")
               .body.find(R"(requests_total{route="GET /schedule/{job}",status="499"} 1)") !=
           std::string::npos;
  };
  // On a busy machine, an impatient client may disconnect before the server has its request.
  for (const int patience_ms : {50, 500, 5000}) {
    auto impatient =
        http::Client::Create({.server = url(), .timeout = std::chrono::milliseconds(patience_ms)});
    EXPECT_FALSE(impatient->Send({.target = "/schedule/run?rank=0"}));
    if (Comes(is_counted, kTimeout / 6)) return;
  }
  FAIL() << Send("GET", "/metrics").body;
}

TEST_F(ControlPlaneTest, RefusesBodiesAboveTheLimitOfTheirRoute) {
  const auto status = [&](const std::string& method, const std::string& target, std::size_t size) {
    return Send(method, target, std::string(size, ' ')).status;
  };
  constexpr std::size_t kKib = 1 << 10;
  constexpr std::size_t kMib = 1 << 20;
  const struct {
    const char* method;
    const char* target;
    std::size_t most;
  } rows[] = {
      {"POST", "/v1/jobs", 8 * kMib},
      {"PUT", "/v1/jobs/run/target", 256 * kKib},
      {"PUT", "/v1/jobs/run/profile", 64 * kMib},
      {"PUT", "/v1/nodes/n0/jobs/run", kMib},
      {"POST", "/v1/nodes/n0/reports", 4 * kMib},
      {"POST", "/result/run", kMib},
      {"POST", "/v1/tokens", 256 * kKib},
  };
  for (const auto& row : rows) {
    EXPECT_NE(status(row.method, row.target, row.most), 413) << row.target;
    EXPECT_EQ(status(row.method, row.target, row.most + 1), 413) << row.target;
  }
}

}  // namespace
}  // namespace perseus::server
