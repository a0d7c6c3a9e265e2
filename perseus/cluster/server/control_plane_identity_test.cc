// Tests over sockets what an attacker can do with a stolen token of a node. Also tests how long a
// revoked token works.
#include <atomic>
#include <future>

#include "tests/support/control_plane_fixture.h"
#include "tests/support/postgres_server.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// The messages after a token was revoked. A request that waits and the next request with the same
// token have different messages.
const auto kEnded = ::testing::AnyOf(HasSubstr("the token does not exist"),
                                     HasSubstr("the token was revoked or has expired"));

// Reads the node's stream with this token until the server closes it, and returns the status of the
// next attempt. `opened` is set when the stream is open.
std::future<std::string> ReadStream(const std::string& server, const std::string& node,
                                    const std::string& token, std::atomic<bool>& opened) {
  return std::async(std::launch::async, [server, node, token, &opened] {
    auto client = http::Client::Create({.server = server, .token = token});
    const auto until = std::chrono::steady_clock::now() + kTimeout;
    const auto listened = client->Listen(
        {.target = "/v1/nodes/" + node + "/events",
         .on_event = [](const http::Event&) { return true; },
         .on_change = [&](std::string_view what) { opened = what.starts_with("connected"); },
         .should_end = [&] { return std::chrono::steady_clock::now() > until; }});
    return listened ? std::string("still open") : listened.error().Message();
  });
}

class IdentityTest : public ControlPlaneTest {
 protected:
  // Two pipelines of four ranks. Node n0 runs pipeline 0, node n1 runs pipeline 1.
  void StartJob() {
    PlanJob("run");
    operator_token_ = Created(R"({"scope": "operator", "name": "ann"})", "")["token"];
    for (const char* node : {"n0", "n1"}) {
      const json token = Created(json{{"scope", "agent"}, {"nodes", {node}}}.dump());
      token_[node] = token["token"];
      id_[node] = token["id"];
      ASSERT_EQ(AttachPipeline(node, node == std::string("n0") ? 0 : 1).status, 200);
    }
  }
  json Created(const std::string& body) { return Created(body, operator_token_); }
  json Created(const std::string& body, const std::string& token) {
    const auto made = As(token, "POST", "/v1/tokens", body);
    EXPECT_EQ(made.status, 201) << made.body;
    return json::parse(made.body);
  }
  http::Response As(const std::string& token, const std::string& method, const std::string& target,
                    const std::string& body = "") const {
    auto client = http::Client::Create({.server = url(), .token = token});
    auto response = client->Send({.method = method, .target = target, .body = body});
    EXPECT_TRUE(response) << response.error().Message();
    return response ? *std::move(response) : http::Response{.status = 0};
  }
  http::Response AsNode(const std::string& node, const std::string& method,
                        const std::string& target, const std::string& body = "") const {
    return As(token_.at(node), method, target, body);
  }
  http::Response AttachPipeline(const std::string& node, int pipeline,
                                const std::string& as = "") const {
    auto ranks = json::array();
    for (int rank = 0; rank < 4; ++rank) {
      ranks.push_back({{"dp_rank", pipeline}, {"pp_rank", rank}});
    }
    return AsNode(as.empty() ? node : as, "PUT", "/v1/nodes/" + node + "/jobs/run",
                  json{{"ranks", ranks}}.dump());
  }
  json Job() const { return json::parse(As(operator_token_, "GET", "/v1/jobs/run").body); }
  // Returns the number of ranks of each node.
  std::map<std::string, std::size_t> Ranks() const {
    std::map<std::string, std::size_t> ranks;
    const json job = Job();
    for (const json& node : job["nodes"]) ranks[node["node"]] = node["ranks"].size();
    return ranks;
  }
  const std::map<std::string, std::size_t> all_{{"n0", 4}, {"n1", 4}};
  std::string operator_token_;
  std::map<std::string, std::string> token_;
  std::map<std::string, std::string> id_;
};

TEST_F(IdentityTest, ANodeDoesNotTakeRanksThatAnotherNodeRuns) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const auto stolen = AttachPipeline("n0", 1);
  EXPECT_EQ(stolen.status, 409) << stolen.body;
  EXPECT_THAT(stolen.body, HasSubstr("node n1 runs rank dp_rank 1, pp_rank 0"));
  EXPECT_THAT(stolen.body, HasSubstr("is silent for 15 s, or runs no step for 600 s"));
  // After the refusal, n0 keeps only those of its own ranks that are in its request. Here, these
  // are none.
  EXPECT_EQ(Ranks(), (std::map<std::string, std::size_t>{{"n1", 4}}));
  // When n1 has other ranks, n0 gets the ranks. So nodes that exchange ranks do not wait for each
  // other forever.
  EXPECT_EQ(AttachPipeline("n1", 0).status, 200);
  EXPECT_EQ(AttachPipeline("n0", 1).status, 200);
  EXPECT_EQ(Ranks(), all_);
  // A token for the whole fleet can take ranks, because a restarted job may run on other nodes. The
  // audit trail records this.
  token_["any"] = Created(R"({"scope": "agent", "nodes": ["*"], "name": "any"})")["token"];
  EXPECT_EQ(AttachPipeline("n0", 0, "any").status, 200);
  const json audit =
      json::parse(As(operator_token_, "GET", "/v1/audit?action=node.take").body)["records"];
  ASSERT_EQ(audit.size(), 1);
  EXPECT_EQ(audit[0]["name"], "any");
  EXPECT_EQ(audit[0]["before"], (json{{"node", "n1"}}));
}

TEST_F(IdentityTest, ANodeInventsNoStragglerInAnotherPipeline) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const json job = Job();
  const auto version = job["assignment"]["version"].get<int>();
  const auto report = [&](const std::string& node, int pipeline, int step, double busy_s) {
    const json steps = {{{"step", step},
                         {"dp_rank", pipeline},
                         {"time_s", 1},
                         {"busy_s", busy_s},
                         {"version", version},
                         {"ranks", 4}}};
    const json body{{"jobs", {{{"job", "run"}, {"acknowledged", version}, {"steps", steps}}}}};
    EXPECT_EQ(AsNode(node, "POST", "/v1/nodes/" + node + "/reports", body.dump()).status, 200);
  };
  const double busy_s = job["assignment"]["pipelines"][0]["time_s"];
  for (int step = 0; step < 30; ++step) {
    report("n0", 0, step, busy_s);
    report("n0", 1, step, 2 * busy_s);  // The attack.
    report("n1", 1, step, busy_s);
  }
  EXPECT_EQ(Job()["stragglers"], json::array());
}

TEST_F(IdentityTest, AnAgentOfSomeJobsAttachesNoOtherJob) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  token_["n2"] = Created(R"({"scope": "agent", "nodes": ["n2"], "jobs": ["team-a-*"]})")["token"];
  EXPECT_EQ(AttachPipeline("n2", 0).status, 403);
  EXPECT_EQ(AsNode("n2", "GET", "/v1/jobs/run").status, 403);
  EXPECT_EQ(json::parse(AsNode("n2", "GET", "/v1/jobs").body)["jobs"], json::array());
}

TEST_F(IdentityTest, ARevokedTokenClosesItsStream) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  std::atomic<bool> opened = false;
  std::atomic<bool> other_opened = false;
  auto ended = ReadStream(url(), "n0", token_["n0"], opened);
  auto other = ReadStream(url(), "n1", token_["n1"], other_opened);
  ASSERT_TRUE(Comes([&] { return opened && other_opened; }));
  ASSERT_EQ(As(operator_token_, "DELETE", "/v1/tokens/" + id_["n0"]).status, 200);
  EXPECT_THAT(ended.get(), kEnded);
  EXPECT_EQ(other.wait_for(std::chrono::seconds(0)), std::future_status::timeout)
      << "the other stream stays open";
  ASSERT_EQ(As(operator_token_, "DELETE", "/v1/tokens/" + id_["n1"]).status, 200);
  EXPECT_THAT(other.get(), kEnded);
}

TEST_F(IdentityTest, AnExpiredTokenClosesItsStream) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const double days = 1.0 / 86'400;
  const json brief =
      Created(json{{"scope", "agent"}, {"nodes", {"n2"}}, {"expires_in_days", days}}.dump());
  std::atomic<bool> opened = false;
  auto ended = ReadStream(url(), "n2", brief["token"], opened);
  EXPECT_THAT(ended.get(), HasSubstr("has expired"));
}

// While no tokens exist, everybody may open a stream. The first token ends this.
TEST_F(IdentityTest, TheFirstTokenClosesStreamsWithoutToken) {
  std::atomic<bool> opened = false;
  auto ended = ReadStream(url(), "n0", "", opened);
  ASSERT_TRUE(Comes([&] { return opened.load(); }));
  Created(R"({"scope": "operator"})", "");
  EXPECT_THAT(ended.get(), HasSubstr("the request has no token"));
}

TEST_F(IdentityTest, AJoinTokenIsExchangedForTheNodesOwnToken) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const json join = Created(R"({"scope": "join", "nodes": ["gpu-*"], "jobs": ["run"]})");
  const std::string secret = join["token"];
  EXPECT_EQ(As(secret, "GET", "/v1/jobs/run").status, 403) << "it is good for nothing else";
  EXPECT_EQ(As(secret, "POST", "/v1/nodes/web/token").status, 403);
  const auto joined = As(secret, "POST", "/v1/nodes/gpu-1/token");
  ASSERT_EQ(joined.status, 201) << joined.body;
  const json token = json::parse(joined.body);
  EXPECT_EQ(token["issued_by"], join["id"]);
  EXPECT_EQ(token["nodes"], json::array({"gpu-1"}));
  EXPECT_EQ(token["jobs"], json::array({"run"}));
  EXPECT_EQ(As(secret, "POST", "/v1/nodes/gpu-1/token").status, 409)
      << "a stolen join token does not give the token of another node";

  const auto renewed = As(token["token"], "POST", "/v1/nodes/gpu-1/token");
  ASSERT_EQ(renewed.status, 200) << renewed.body;
  const json again = json::parse(renewed.body);
  EXPECT_EQ(again["id"], token["id"]);
  EXPECT_NE(again["token"], token["token"]);
  // The answer may have been lost. So the old secret is still valid, and may be renewed again.
  EXPECT_EQ(As(token["token"], "POST", "/v1/nodes/gpu-1/token").status, 200);
  EXPECT_EQ(As(again["token"], "GET", "/v1/jobs/run").status, 401) << "this one was replaced";

  const std::string id = token["id"];
  ASSERT_EQ(As(operator_token_, "DELETE", "/v1/tokens/" + id).status, 200);
  EXPECT_EQ(As(token["token"], "POST", "/v1/nodes/gpu-1/token").status, 401);
  EXPECT_EQ(As(secret, "POST", "/v1/nodes/gpu-1/token").status, 201) << "the name is free again";
}

// The answer may be lost if the server dies. Only the node that has sent the attempt can repeat it.
TEST_F(IdentityTest, AJoinWhoseAnswerWasLostIsRepeated) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const std::string secret = Created(R"({"scope": "join", "nodes": ["gpu-*"]})")["token"];
  const std::string other = Created(R"({"scope": "join", "nodes": ["gpu-*"]})")["token"];
  const std::string mine = json{{"attempt", std::string(64, 'a')}}.dump();
  const auto join = [&](const std::string& with, const std::string& body) {
    return As(with, "POST", "/v1/nodes/gpu-1/token", body);
  };
  const json lost = json::parse(join(secret, mine).body);
  for (const auto& [what, with, body] :
       {std::tuple{"no attempt", secret, std::string()},
        {"an empty object", secret, std::string("{}")},
        {"another attempt", secret, json{{"attempt", std::string(64, 'b')}}.dump()},
        {"another join token", other, mine}}) {
    EXPECT_EQ(join(with, body).status, 409) << what;
  }
  const auto repeated = join(secret, mine);
  ASSERT_EQ(repeated.status, 201) << repeated.body;
  const json token = json::parse(repeated.body);
  EXPECT_TRUE(Comes([&] {
    return As(lost["token"], "POST", "/v1/nodes/gpu-1/token").status == 401;
  })) << "it was replaced";
  // The attempt is not a secret for requests. It ends when the node renews its token.
  EXPECT_EQ(As(std::string(64, 'a'), "GET", "/v1/jobs/run").status, 401);
  EXPECT_EQ(As("join:" + std::string(64, 'a'), "GET", "/v1/jobs/run").status, 401);
  ASSERT_EQ(As(token["token"], "POST", "/v1/nodes/gpu-1/token").status, 200);
  EXPECT_EQ(join(secret, mine).status, 409);
  for (const char* bad : {R"({"attempt": "abc"})", R"({"attempt": 1})", R"({"other": 1})", "[]"}) {
    EXPECT_EQ(join(secret, bad).status, 400) << bad;
  }
}

TEST_F(IdentityTest, OfManyJoinsOfOneNameAtTheSameTimeOneGetsAToken) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const std::string secret = Created(R"({"scope": "join", "nodes": ["gpu-*"]})")["token"];
  std::vector<std::future<int>> joins;
  for (int i = 0; i < 16; ++i) {
    joins.push_back(std::async(std::launch::async,
                               [&] { return As(secret, "POST", "/v1/nodes/gpu-1/token").status; }));
  }
  std::map<int, int> statuses;
  for (auto& one : joins) ++statuses[one.get()];
  EXPECT_EQ(statuses, (std::map<int, int>{{201, 1}, {409, 15}}));
}

// A credential for exactly this node can join any number of times, because a restarted pod has no
// stored token.
TEST_F(IdentityTest, ANodeHasFewTokensInForce) {
  ASSERT_NO_FATAL_FAILURE(StartJob());
  const std::string secret = Created(R"({"scope": "join", "nodes": ["gpu-1"]})")["token"];
  std::vector<std::string> tokens;
  for (int i = 0; i < 10; ++i) {
    const auto joined = As(secret, "POST", "/v1/nodes/gpu-1/token");
    ASSERT_EQ(joined.status, 201) << joined.body;
    tokens.push_back(json::parse(joined.body)["token"]);
  }
  int of_node = 0;
  const json listed = json::parse(As(operator_token_, "GET", "/v1/tokens").body)["tokens"];
  for (const json& token : listed) of_node += token.value("nodes", json()) == json{"gpu-1"} ? 1 : 0;
  EXPECT_EQ(of_node, 1 + static_cast<int>(store::Store::kMostTokensOfNode))
      << "with the join token";
  EXPECT_EQ(As(tokens.back(), "POST", "/v1/nodes/gpu-1/token").status, 200);
  EXPECT_TRUE(
      Comes([&] { return As(tokens.front(), "POST", "/v1/nodes/gpu-1/token").status == 401; }));
}

TEST_F(IdentityTest, MembersSeeAndChangeTheJobsOfTheirOwner) {
  operator_token_ = Created(R"({"scope": "operator"})", "")["token"];
  const std::string a = Created(R"({"scope": "member", "owner": "team-a"})")["token"];
  const std::string b = Created(R"({"scope": "member", "owner": "team-b"})")["token"];
  const auto made = As(a, "POST", "/v1/jobs", JobBody("run-a"));
  ASSERT_EQ(made.status, 201) << made.body;
  EXPECT_EQ(json::parse(made.body)["owner"], "team-a");
  ASSERT_EQ(As(b, "POST", "/v1/jobs", JobBody("run-b")).status, 201);
  EXPECT_EQ(As(b, "GET", "/v1/jobs/run-a").status, 403);
  EXPECT_EQ(As(b, "GET", "/v1/jobs/missing").body, As(b, "GET", "/v1/jobs/run-a").body)
      << "the answer does not show whether it exists";
  EXPECT_EQ(As(b, "POST", "/v1/jobs/run-a/end").status, 403);
  const auto taken = As(b, "POST", "/v1/jobs", JobBody("run-a"));
  EXPECT_EQ(taken.status, 403) << taken.body;
  json other = json::parse(JobBody("run-c"));
  other["owner"] = "team-a";
  EXPECT_EQ(As(b, "POST", "/v1/jobs", other.dump()).status, 403);
  const json jobs = json::parse(As(b, "GET", "/v1/jobs").body)["jobs"];
  ASSERT_EQ(jobs.size(), 1);
  EXPECT_EQ(jobs[0]["key"], "run-b");
  EXPECT_EQ(As(a, "GET", "/metrics").status, 403);
  EXPECT_EQ(As(a, "POST", "/v1/jobs/run-a/end").status, 200);
  EXPECT_EQ(As(b, "POST", "/v1/jobs", JobBody("run-a")).status, 403)
      << "ranks of the ended job may still run";
  EXPECT_EQ(As(a, "POST", "/v1/jobs", JobBody("run-a")).status, 201);
}

TEST(Replicas, ATokenThatOneReplicaRevokesClosesItsStreamAtTheOther) {
  if (!PostgresServer::WhyNot().empty()) GTEST_SKIP() << PostgresServer::WhyNot();
  PostgresServer postgres;
  const RunningControlPlane one({.database = postgres.address(), .replica = "one"});
  const RunningControlPlane two({.database = postgres.address(), .replica = "two"});
  const auto client = [](const RunningControlPlane& replica, const std::string& token) {
    return *http::Client::Create({.server = replica.url(), .token = token});
  };
  const auto create = [&](const std::string& token, const std::string& body) {
    return json::parse(
        client(one, token).Send({.method = "POST", .target = "/v1/tokens", .body = body})->body);
  };
  const std::string ann = create("", R"({"scope": "operator"})")["token"];
  const json node = create(ann, R"({"scope": "agent", "nodes": ["n0"]})");
  // At first, the other replica may not have read the new tokens yet. Until then it accepts
  // everybody.
  const auto status_at_two = [&](const std::string& token) {
    return client(two, token).Send({.target = "/v1/nodes/n0/jobs"})->status;
  };
  ASSERT_TRUE(Comes([&] { return status_at_two("") == 401; }));
  ASSERT_TRUE(Comes([&] { return status_at_two(node["token"]) == 200; }));
  std::atomic<bool> opened = false;
  auto ended = ReadStream(two.url(), "n0", node["token"], opened);
  ASSERT_TRUE(Comes([&] { return opened.load(); }));
  const std::string target = "/v1/tokens/" + node["id"].get<std::string>();
  EXPECT_EQ(client(one, ann).Send({.method = "DELETE", .target = target})->status, 200);
  EXPECT_THAT(ended.get(), kEnded);
}

TEST_F(IdentityTest, TokensSayWhatTheyAreBoundTo) {
  operator_token_ = Created(R"({"scope": "operator"})", "")["token"];
  for (const auto& [body, message] :
       {std::pair{R"({"scope": "agent"})", "name the nodes"},
        {R"({"scope": "join"})", "name the nodes"},
        {R"({"scope": "member"})", "name the team"},
        {R"({"scope": "read", "nodes": ["n0"]})", "is for the scopes agent and join"},
        {R"({"scope": "operator", "jobs": ["run"]})", "is for the scopes agent, join and read"},
        {R"({"scope": "agent", "nodes": ["*"], "owner": "a"})", "is for the scopes member"},
        {R"({"scope": "agent", "nodes": ["a\nb"]})", "is not a name or a pattern"},
        {R"({"scope": "agent", "nodes": ["*"], "job": "run"})", "use jobs with other scopes"},
        {R"({"scope": "read", "name": "a\nb"})", "is not a name"}}) {
    const auto refused = As(operator_token_, "POST", "/v1/tokens", body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_THAT(refused.body, HasSubstr(message)) << body;
  }
}

}  // namespace
}  // namespace perseus::server
