// Tests the rights of every kind of token on every route, over sockets. The test fails if a route
// has no row here, or if its x-scopes in openapi.yaml differ from the row.
#include <map>
#include <sstream>

#include "perseus/cluster/server/api/endpoints.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_server.h"

namespace perseus::server {
namespace {

using nlohmann::json;

// Says who has the right to a route. This table does not depend on the server's own table.
enum class For {
  kEverybody,      // Also without a token.
  kIdentified,     // All scopes.
  kReaders,        // All scopes except join. A token of scope job or member only for its own jobs.
  kReadersOfMany,  // All scopes except join and job.
  kOwners,         // Operators, members of the owner, and the job's token.
  // The same as kReadersOfMany, but not members, who see only the jobs of their owner.
  kReadersOfFleet,
  kReadersOfNode,  // The same as kReadersOfFleet, but not other nodes.
  kNodes,          // Operators and agents.
  kJoiners,        // Nodes that join, and nodes that have joined.
  kOperators,
};

struct RightsRow {
  For access;
  std::string target;  // The path for job "mine".
  std::string body;    // With the right to the route, this body changes something.
};

const char* const kRightsTableJob =
    R"({"key": "mine", "owner": "team-a", "pipelines": 2, "schedule": {"kind": "1f1b", "pp_ranks": 2, "microbatches": 4}})";

std::map<std::string, RightsRow> Table() {
  const std::string job = "/v1/jobs/mine";
  const std::string node = "/v1/nodes/n0";
  return {
      {"GET /healthz", {For::kEverybody, "/healthz", ""}},
      {"GET /readyz", {For::kEverybody, "/readyz", ""}},
      {"GET /openapi.yaml", {For::kEverybody, "/openapi.yaml", ""}},
      {"GET /v1/whoami", {For::kIdentified, "/v1/whoami", ""}},
      {"GET /metrics", {For::kReadersOfFleet, "/metrics", ""}},
      {"GET /v1/jobs", {For::kReadersOfMany, "/v1/jobs", ""}},
      {"POST /v1/jobs", {For::kOwners, "/v1/jobs", kRightsTableJob}},
      {"GET /v1/jobs/{job}", {For::kReaders, job, ""}},
      {"POST /v1/jobs/{job}/end", {For::kOwners, job + "/end", "{}"}},
      {"PUT /v1/jobs/{job}/target",
       {For::kOwners, job + "/target", R"({"kind": "slowdown", "value": 5})"}},
      {"GET /v1/jobs/{job}/profile", {For::kReaders, job + "/profile", ""}},
      {"PUT /v1/jobs/{job}/profile", {For::kOwners, job + "/profile", "stage,instruction\n"}},
      {"GET /v1/jobs/{job}/frontier", {For::kReaders, job + "/frontier", ""}},
      {"GET /v1/jobs/{job}/plans", {For::kReaders, job + "/plans", ""}},
      {"GET /v1/jobs/{job}/plans/{target}", {For::kReaders, job + "/plans/current", ""}},
      {"GET /v1/jobs/{job}/assignments", {For::kReaders, job + "/assignments", ""}},
      {"GET /v1/jobs/{job}/stragglers", {For::kReaders, job + "/stragglers", ""}},
      {"PUT /v1/jobs/{job}/stragglers/{dp_rank}",
       {For::kOwners, job + "/stragglers/1", R"({"slowdown": 1.5})"}},
      {"DELETE /v1/jobs/{job}/stragglers/{dp_rank}", {For::kOwners, job + "/stragglers/1", ""}},
      {"POST /v1/jobs/{job}/forecasts",
       {For::kOwners, job + "/forecasts", R"({"dp_rank": 0, "slowdown": 1.5})"}},
      {"GET /v1/plans/{plan}", {For::kReaders, "/v1/plans/PLAN", ""}},
      {"GET /v1/nodes", {For::kReadersOfFleet, "/v1/nodes", ""}},
      {"GET /v1/nodes/{node}/jobs", {For::kReadersOfNode, node + "/jobs", ""}},
      {"PUT /v1/nodes/{node}/jobs/{job}",
       {For::kNodes, node + "/jobs/mine", R"({"ranks": [{"dp_rank": 0, "pp_rank": 0}]})"}},
      {"DELETE /v1/nodes/{node}/jobs/{job}", {For::kNodes, node + "/jobs/mine", ""}},
      {"POST /v1/nodes/{node}/reports",
       {For::kNodes, node + "/reports",
        R"({"jobs": [{"job": "mine", "steps": [{"step": 5, "dp_rank": 0, "busy_s": 1,
                                                "ranks": 1}]}]})"}},
      {"GET /v1/nodes/{node}/events", {For::kNodes, node + "/events", ""}},
      {"GET /v1/tokens", {For::kOperators, "/v1/tokens", ""}},
      {"POST /v1/tokens", {For::kOperators, "/v1/tokens", R"({"scope": "operator"})"}},
      {"DELETE /v1/tokens/{token}", {For::kOperators, "/v1/tokens/TOKEN", ""}},
      {"POST /v1/nodes/{node}/token", {For::kJoiners, node + "/token", ""}},
      {"GET /v1/audit", {For::kOperators, "/v1/audit", ""}},
      {"GET /v1/jobs/{job}/audit", {For::kReaders, job + "/audit", ""}},
      {"POST /register_job",
       {For::kOwners, "/register_job",
        R"({"pp_degree": 2, "dp_degree": 2, "tp_degree": 1, "world_size": 4,
            "job_metadata": "mine"})"}},
      {"POST /register_rank/{job}",
       {For::kOwners, "/register_rank/mine",
        R"({"rank": 0, "dp_rank": 0, "pp_rank": 0, "tp_rank": 0, "available_frequencies": [1410]})"}},
      // With a rank in the path, the request would wait for all ranks.
      {"GET /schedule/{job}", {For::kReaders, "/schedule/mine", ""}},
      {"POST /result/{job}",
       {For::kOwners, "/result/mine", R"({"rank": 0, "iter_time": [1], "iter_energy": [1]})"}},
  };
}

enum class Who {
  kOperator,
  kAgent,
  kOwnJob,
  kOtherJob,
  kReader,
  kMember,
  kOtherMember,
  kOtherNode,
  kJoin,
  kOtherJoin,
};
constexpr std::array<Who, 10> kEverybody{
    Who::kOperator, Who::kAgent,       Who::kOwnJob,    Who::kOtherJob, Who::kReader,
    Who::kMember,   Who::kOtherMember, Who::kOtherNode, Who::kJoin,     Who::kOtherJoin};

bool May(Who who, For access) {
  const bool is_join = who == Who::kJoin || who == Who::kOtherJoin;
  const bool is_job = who == Who::kOwnJob || who == Who::kOtherJob;
  switch (access) {
    case For::kEverybody:
    case For::kIdentified:
      return true;
    case For::kReaders:
      return !is_join && who != Who::kOtherJob && who != Who::kOtherMember;
    case For::kReadersOfMany:
      return !is_join && !is_job;
    case For::kReadersOfFleet:
      return !is_join && !is_job && who != Who::kMember && who != Who::kOtherMember;
    case For::kReadersOfNode:
      return who == Who::kOperator || who == Who::kAgent || who == Who::kReader;
    case For::kOwners:
      return who == Who::kOperator || who == Who::kOwnJob || who == Who::kMember;
    case For::kNodes:
      return who == Who::kOperator || who == Who::kAgent;
    case For::kJoiners:
      return who == Who::kJoin;  // In this test, no join token issued the agent's token.
    case For::kOperators:
      return who == Who::kOperator;
  }
  return false;
}

// Returns the body that creates a token of this kind. Node n0 is the node of the table.
std::string TokenOf(Who who, double expires_in_days) {
  static const std::map<Who, json> kTokens{
      {Who::kOperator, {{"scope", "operator"}}},
      {Who::kAgent, {{"scope", "agent"}, {"nodes", {"n0"}}}},
      {Who::kOwnJob, {{"scope", "job"}, {"job", "mine"}}},
      {Who::kOtherJob, {{"scope", "job"}, {"job", "other"}}},
      {Who::kReader, {{"scope", "read"}}},
      {Who::kMember, {{"scope", "member"}, {"owner", "team-a"}}},
      {Who::kOtherMember, {{"scope", "member"}, {"owner", "team-b"}}},
      {Who::kOtherNode, {{"scope", "agent"}, {"nodes", {"n1"}}}},
      {Who::kJoin, {{"scope", "join"}, {"nodes", {"n*"}}}},
      {Who::kOtherJoin, {{"scope", "join"}, {"nodes", {"m*"}}}}};
  json body = kTokens.at(who);
  body["expires_in_days"] = expires_in_days;
  return body.dump();
}

// Returns the scopes of each route in openapi.yaml: "GET /v1/jobs" -> "[operator, agent, read]". In
// this file, paths have an indent of two spaces, methods of four, and the members of methods of
// six.
std::map<std::string, std::string> ScopesOfContract() {
  std::map<std::string, std::string> scopes;
  std::istringstream lines{std::string(OpenApiDocument())};
  std::string path;
  std::string route;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("components:")) break;
    const std::size_t indent = line.find_first_not_of(' ');
    if (indent == std::string::npos || line[indent] == '#') continue;
    const std::string word = line.substr(indent, line.find(':') - indent);
    if (indent == 2 && word.starts_with("/")) path = word;
    if (indent == 4 && !path.empty() && word != "parameters") {
      route = word + " " + path;
      std::ranges::transform(word, route.begin(), [](char c) { return std::toupper(c); });
      scopes[route] = "none";
    }
    if (indent == 6 && word == "x-scopes") scopes[route] = line.substr(line.find('['));
  }
  return scopes;
}

std::string ScopesOf(For access) {
  if (access == For::kEverybody) return "[public]";
  if (access == For::kJoiners) return "[agent, join]";
  if (access == For::kIdentified) return "[operator, member, agent, job, read, join]";
  std::string text = "[operator";
  if (May(Who::kMember, access)) text += ", member";
  if (May(Who::kAgent, access)) text += ", agent";
  if (May(Who::kOwnJob, access)) text += ", job";
  if (May(Who::kReader, access)) text += ", read";
  return text + "]";
}

class RightsOverSockets : public testing::Test {
 protected:
  explicit RightsOverSockets(IdentitySettings identities = {})
      : plane_({.identities = std::move(identities)}) {}

  http::Client ClientWith(const std::string& token) const {
    return *http::Client::Create(
        {.server = plane_.url(), .token = token, .timeout = std::chrono::milliseconds(20'000)});
  }
  static http::Response Send(http::Client& client, const std::string& method,
                             const std::string& target, const std::string& body = "") {
    auto response = client.Send(
        {.method = method, .target = target, .body = body, .content_type = ContentType(target)});
    EXPECT_TRUE(response) << method << " " << target << ": " << response.error().Message();
    return response ? *std::move(response) : http::Response{.status = 0};
  }
  static json Sent(http::Client& client, const std::string& method, const std::string& target,
                   const std::string& body = "") {
    const http::Response response = Send(client, method, target, body);
    EXPECT_LT(response.status, 300) << method << " " << target << "\n" << response.body;
    return json::parse(response.body, nullptr, false);
  }
  // Returns whether the stream opens.
  static bool Opens(http::Client& client, const std::string& target) {
    bool is_open = false;
    return client
        .Listen(
            {.target = target,
             .on_event = [](const http::Event&) { return true; },
             .on_change = [&](std::string_view what) { is_open = what.starts_with("connected"); },
             .should_end = [&] { return is_open; }})
        .has_value();
  }

  // Makes a job with a plan, and then the tokens. Afterwards, requests need a token.
  void MakeJobAndTokens() {
    http::Client open = ClientWith(first_);
    Sent(open, "POST", "/v1/jobs", kRightsTableJob);
    synthetic::SyntheticProfileSpec spec;
    spec.pp_ranks = 2;
    Sent(open, "PUT", "/v1/jobs/mine/profile",
         profile::FormatProfile(*synthetic::SynthesizeProfile(spec)));
    json job;
    ASSERT_TRUE(Comes([&] {
      job = Sent(open, "GET", "/v1/jobs/mine");
      return job.contains("assignment");
    })) << job;
    plan_ = job["assignment"]["pipelines"][0]["plan"];
    const json first = Sent(open, "POST", "/v1/tokens", R"({"scope": "operator"})");
    http::Client operators = ClientWith(first["token"]);
    good_.push_back(first["token"]);
    for (const Who who : kEverybody) {
      const json late = Sent(operators, "POST", "/v1/tokens", TokenOf(who, 0));
      expired_.push_back(late["token"]);
      if (who == Who::kOperator) continue;
      good_.push_back(Sent(operators, "POST", "/v1/tokens", TokenOf(who, 1))["token"]);
    }
    // A request of the table revokes this token.
    token_ = Sent(operators, "POST", "/v1/tokens", TokenOf(Who::kReader, 1))["id"];
  }

  std::string TargetOf(const RightsRow& row) const {
    std::string target = row.target;
    for (const auto& [word, value] : {std::pair{"PLAN", plan_}, std::pair{"TOKEN", token_}}) {
      const std::size_t at = target.find(word);
      if (at != std::string::npos) target.replace(at, std::string::npos, value);
    }
    return target;
  }
  // Returns all state that the requests could change.
  json State() const {
    http::Client client = ClientWith(good_[0]);
    json state;
    for (const char* target : {"/v1/jobs?all=1", "/v1/jobs/mine", "/v1/jobs/mine/assignments",
                               "/v1/nodes/n0/jobs", "/v1/tokens", "/v1/jobs/mine/plans"}) {
      state[target] = Sent(client, "GET", target);
    }
    return state;
  }

  RunningControlPlane plane_;
  std::string first_;  // The token of the first requests. Empty: no tokens exist.
  std::string plan_;
  std::string token_;
  std::vector<std::string> good_;     // Valid tokens, by Who.
  std::vector<std::string> expired_;  // Expired tokens, by Who.
};

TEST_F(RightsOverSockets, EveryRouteHasARowAndTheScopesOfTheContract) {
  std::map<std::string, std::string> expected;
  for (const auto& [route, row] : Table()) expected[route] = ScopesOf(row.access);
  EXPECT_EQ(ScopesOfContract(), expected);
  std::vector<std::string> routes;
  for (const auto& [route, row] : Table()) routes.push_back(route);
  EXPECT_THAT(plane_->Routes(), testing::UnorderedElementsAreArray(routes));
}

TEST_F(RightsOverSockets, RefusesCallersWithoutTheRight) {
  ASSERT_NO_FATAL_FAILURE(MakeJobAndTokens());
  const json before = State();
  const std::string wrong = "perseus_" + std::string(64, '0');
  const auto refuses = [&](const std::string& route, const RightsRow& row, const std::string& token,
                           int status) {
    http::Client client = ClientWith(token);
    const auto response = Send(client, route.substr(0, route.find(' ')), TargetOf(row), row.body);
    EXPECT_EQ(response.status, status) << route << "\n" << response.body;
    EXPECT_EQ(response.content_type, "application/problem+json") << route;
    EXPECT_FALSE(json::parse(response.body, nullptr, false).value("remedy", "").empty()) << route;
  };
  for (const auto& [route, row] : Table()) {
    if (row.access == For::kEverybody) continue;
    refuses(route, row, "", 401);
    refuses(route, row, wrong, 401);
    for (const std::string& token : expired_) refuses(route, row, token, 401);
    for (const Who who : kEverybody) {
      if (!May(who, row.access)) refuses(route, row, good_[static_cast<std::size_t>(who)], 403);
    }
  }
  EXPECT_EQ(State(), before);
}

TEST_F(RightsOverSockets, ServesCallersWithTheRight) {
  ASSERT_NO_FATAL_FAILURE(MakeJobAndTokens());
  for (const auto& [route, row] : Table()) {
    std::vector<std::string> tokens;
    for (const Who who : kEverybody) {
      if (May(who, row.access)) tokens.push_back(good_[static_cast<std::size_t>(who)]);
    }
    if (row.access == For::kEverybody) tokens.insert(tokens.end(), {"", "wrong", expired_[0]});
    for (const std::string& token : tokens) {
      http::Client client = ClientWith(token);
      if (route.ends_with("/events")) {
        EXPECT_TRUE(Opens(client, TargetOf(row))) << route;
        continue;
      }
      const auto response = Send(client, route.substr(0, route.find(' ')), TargetOf(row), row.body);
      EXPECT_NE(response.status, 401) << route << "\n" << response.body;
      EXPECT_NE(response.status, 403) << route << "\n" << response.body;
      EXPECT_LT(response.status, 500) << route << "\n" << response.body;
    }
  }
}

// A new plan takes seconds of CPU time and is stored. So readers receive only existing plans.
TEST_F(RightsOverSockets, OnlyOwnersCauseNewPlans) {
  ASSERT_NO_FATAL_FAILURE(MakeJobAndTokens());
  int percent = 3;
  for (const Who who : kEverybody) {
    http::Client client = ClientWith(good_[static_cast<std::size_t>(who)]);
    const std::string target = "/v1/jobs/mine/plans/slowdown-" + std::to_string(percent++);
    const int status = May(who, For::kOwners) ? 200 : 403;
    EXPECT_EQ(Send(client, "GET", target).status, status) << static_cast<int>(who);
    http::Client operators = ClientWith(good_[0]);
    EXPECT_EQ(Send(operators, "GET", target).status, 200);
    const int once_made = May(who, For::kReaders) ? 200 : 403;
    EXPECT_EQ(Send(client, "GET", target).status, once_made) << static_cast<int>(who);
  }
}

// The answers do not show which other jobs exist.
TEST_F(RightsOverSockets, TheTokenOfAJobRevealsNothingAboutOtherJobs) {
  ASSERT_NO_FATAL_FAILURE(MakeJobAndTokens());
  http::Client other = ClientWith(good_[static_cast<std::size_t>(Who::kOtherJob)]);
  const std::string degrees = R"({"pp_degree": 2, "dp_degree": 2, "tp_degree": 1, "world_size": 4)";
  const auto there = Send(other, "POST", "/register_job", degrees + R"(, "job_metadata": "mine"})");
  const auto not_there =
      Send(other, "POST", "/register_job", degrees + R"(, "job_metadata": "nobody"})");
  EXPECT_EQ(there.status, 403) << there.body;
  EXPECT_EQ(not_there.body, there.body);
  const auto unnamed = Send(other, "POST", "/register_job", degrees + "}");
  EXPECT_EQ(unnamed.status, 422) << unnamed.body;
  EXPECT_THAT(unnamed.body, testing::Not(testing::HasSubstr("mine")));
  EXPECT_EQ(Send(other, "GET", "/v1/plans/" + plan_).body,
            Send(other, "GET", "/v1/plans/p-0000000000000000").body);
  EXPECT_EQ(Send(other, "GET", "/v1/jobs/nobody").body, Send(other, "GET", "/v1/jobs/mine").body);
  EXPECT_EQ(Send(other, "GET", "/v1/jobs/nobody").status, 403);
}

// People behind a proxy have the rights of the token of their scope.
class RightsOfPeople : public RightsOverSockets {
 protected:
  explicit RightsOfPeople(
      std::shared_ptr<TemporaryDirectory> directory = std::make_shared<TemporaryDirectory>())
      : RightsOverSockets(
            *ReadIdentitySettings("[proxy]\nsocket = \"" + (*directory / "s").string() + R"("
[[proxy.grant]]
group = "admins"
scope = "operator"
[[proxy.grant]]
group = "team-*"
scope = "member"
owner = "{group}"
[[proxy.grant]]
group = "readers"
scope = "read"
)",
                                  "identities.toml")),
        directory_(std::move(directory)) {}

  // Returns the first lines of the answer to a person in these groups, and the body of the answer.
  std::string Answer(const std::string& groups, const std::string& route, const RightsRow& row) {
    http::RawClient client((*directory_ / "s").string());
    client.Send(fmt::format(
        "{} {} HTTP/1.1\r\nHost: perseus\r\nX-Forwarded-User: ann\r\nX-Forwarded-Groups: {}\r\n"
        "Content-Type: {}\r\nContent-Length: {}\r\n\r\n{}",
        route.substr(0, route.find(' ')), TargetOf(row), groups, ContentType(row.target),
        row.body.size(), row.body));
    return client.ReadResponse();
  }

  std::shared_ptr<TemporaryDirectory> directory_;
};

TEST_F(RightsOfPeople, AreThoseOfTheirScope) {
  const std::string made = Answer("admins", "POST /v1/tokens",
                                  {For::kOperators, "/v1/tokens", R"({"scope": "operator"})"});
  first_ = json::parse(made.substr(made.find("\r\n\r\n") + 4))["token"];
  ASSERT_NO_FATAL_FAILURE(MakeJobAndTokens());
  const std::map<Who, std::string> groups{{Who::kOperator, "admins"},
                                          {Who::kReader, "readers"},
                                          {Who::kMember, "team-a"},
                                          {Who::kOtherMember, "team-b"}};
  const json before = State();
  for (const auto& [route, row] : Table()) {
    for (const auto& [who, group] : groups) {
      if (May(who, row.access)) continue;
      EXPECT_THAT(Answer(group, route, row), testing::StartsWith("HTTP/1.1 403 "))
          << route << group;
    }
  }
  EXPECT_EQ(State(), before);
  for (const auto& [route, row] : Table()) {
    for (const auto& [who, group] : groups) {
      if (!May(who, row.access)) continue;
      const std::string answer = Answer(group, route, row);
      for (const char* refused : {"HTTP/1.1 401", "HTTP/1.1 403", "HTTP/1.1 5"}) {
        EXPECT_THAT(answer, testing::Not(testing::StartsWith(refused))) << route << group;
      }
    }
  }
}

}  // namespace
}  // namespace perseus::server
