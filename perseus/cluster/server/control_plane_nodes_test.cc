// Tests the requests of nodes: streams of assignments, attachments and reports.
#include "perseus/cluster/store/database.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/postgres_server.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST_F(ControlPlaneTest, SendsAssignmentsToNodes) {
  PlanJob("run");
  Attach("n0", "run", 0);
  Attach("n1", "run", 1);
  NodeStream n0(url(), "n0");
  NodeStream n1(url(), "n1");
  const int first = n0.Await(IsAssignment);
  ASSERT_GE(first, 0);
  const json assignment = json::parse(n0.At(first).data);
  EXPECT_EQ(assignment["key"], "run");
  EXPECT_EQ(assignment["plans"].size(), 1U) << "only of its own pipelines";
  const std::string plan = assignment["plans"]["0"];
  const json file = assignment["files"][plan];
  EXPECT_EQ(file["pp_ranks"][1]["instructions"].size(), 16U);
  EXPECT_FALSE(file["pp_ranks"][1].contains("cut"));
  EXPECT_EQ(file["pp_ranks"][3]["instructions"].size(), 1U) << "not one of its ranks";
  EXPECT_EQ(file["pp_ranks"][3]["cut"], true);
  ASSERT_GE(n1.Await(IsAssignment), 0);
  const http::Response cut = Send("GET", "/v1/plans/" + plan + "?pp_ranks=0,4");
  EXPECT_EQ(cut.status, 400);
  EXPECT_EQ(json::parse(cut.body)["pointer"], "?pp_ranks");

  ASSERT_EQ(Send("PUT", "/v1/jobs/run/stragglers/1", R"({"slowdown": 1.25})").status, 200);
  const auto says_straggler = [](const http::Event& event) {
    return IsAssignment(event) && json::parse(event.data)["reason"].get<std::string>().find(
                                      "straggler 1: 25.00 %") != std::string::npos;
  };
  const int during = n0.Await(says_straggler);
  ASSERT_GE(during, 0);
  EXPECT_NE(json::parse(n0.At(during).data)["plans"]["0"], plan);
  const int of_straggler = n1.Await(says_straggler);
  ASSERT_GE(of_straggler, 0);

  ASSERT_EQ(Send("DELETE", "/v1/jobs/run/stragglers/1").status, 200);
  EXPECT_GE(
      n0.Await(
          [&](const http::Event& event) { return IsAssignment(event) && !says_straggler(event); },
          static_cast<std::size_t>(during) + 1),
      0);
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  const auto ended = [](const http::Event& event) { return event.name == "ended"; };
  EXPECT_GE(n0.Await(ended), 0);
  EXPECT_GE(n1.Await(ended), 0);
}

// Nodes may have higher versions than the database, because an older database may have been
// restored.
TEST_F(ControlPlaneTest, RaisesVersionsAboveThoseOfNodes) {
  PlanJob("run");
  Attach("n0", "run", 0);
  const std::string id = Get("/v1/jobs/run")["id"];
  NodeStream stream(url(), "n0", id + ":70");
  const auto report = [&](std::int64_t version) {
    const json body{{"jobs", {{{"job", id}, {"acknowledged", version}, {"following", version}}}}};
    return Send("POST", "/v1/nodes/n0/reports", body.dump());
  };
  ASSERT_EQ(report(70).status, 200);
  const int assignment = stream.Await(IsAssignment);
  ASSERT_EQ(assignment, 0);
  EXPECT_EQ(json::parse(stream.At(assignment).data)["version"], 71);
  EXPECT_EQ(report(1'000'000'000'001).status, 400);
}

TEST_F(ControlPlaneTest, NamesTheJobsToWhichANodeIsNotAttached) {
  for (const char* key : {"mine", "other", "ended"}) {
    ASSERT_EQ(Send("POST", "/v1/jobs", JobBody(key)).status, 201);
  }
  Attach("n0", "mine", 0);
  Attach("n0", "ended", 0);
  ASSERT_EQ(Send("POST", "/v1/jobs/ended/end", "{}").status, 200);
  json body{{"jobs", json::array()}};
  for (const char* key : {"other", "mine", "ended", "j-0000000000000000"}) {
    body["jobs"].push_back(
        {{"job", key},
         {"acknowledged", 3},
         {"steps", {{{"step", 7}, {"dp_rank", 0}, {"busy_s", 1}, {"ranks", 2}}}}});
  }
  const http::Response taken = Send("POST", "/v1/nodes/n0/reports", body.dump());
  EXPECT_EQ(taken.status, 200);
  EXPECT_EQ(json::parse(taken.body),
            (json{{"not_attached", {"other", "ended", "j-0000000000000000"}},
                  {"refused", json::object()},
                  {"takes", json::array({"running"})}}));
  EXPECT_EQ(Get("/v1/nodes/n0/jobs")["jobs"][0]["acknowledged"], 3);
  EXPECT_EQ(Get("/v1/jobs/mine")["last_step"], 7);
  EXPECT_EQ(Get("/v1/jobs/other")["last_step"], -1);
  body["jobs"] = json::array({body["jobs"][0]});
  body["jobs"][0].erase("steps");
  const auto not_attached = [&] {
    return json::parse(Send("POST", "/v1/nodes/n0/reports", body.dump()).body)["not_attached"];
  };
  EXPECT_EQ(not_attached(), json::array({"other"}));
  body["jobs"] = json::array();
  EXPECT_EQ(not_attached(), json::array());
}

TEST_F(ControlPlaneTest, AnInvalidReportOfAJobAffectsNoOtherJob) {
  for (const char* key : {"good", "bad"}) {
    ASSERT_EQ(Send("POST", "/v1/jobs", JobBody(key)).status, 201);
    Attach("n0", key, 0);
  }
  const auto job = [](const char* key, double busy_s) -> json {
    return {{"job", key},
            {"steps", {{{"step", 7}, {"dp_rank", 0}, {"busy_s", busy_s}, {"ranks", 2}}}}};
  };
  const json both{{"jobs", {job("bad", 1e7), job("good", 1)}}};
  const http::Response taken = Send("POST", "/v1/nodes/n0/reports", both.dump());
  EXPECT_EQ(taken.status, 200) << taken.body;
  EXPECT_THAT(json::parse(taken.body)["refused"]["bad"].get<std::string>(),
              HasSubstr("jobs[0].steps[0].busy_s"));
  EXPECT_EQ(Get("/v1/jobs/good")["last_step"], 7);
  EXPECT_EQ(Get("/v1/jobs/bad")["last_step"], -1);
}

// A user of a node writes the key of another user's job into a job directory.
TEST_F(ControlPlaneTest, OnlyRanksOfTheUserOfAJobJoinIt) {
  json body = json::parse(JobBody("run"));
  body["user"] = "ann";
  ASSERT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
  const auto attach = [this](const char* node, const json& users) {
    json attachment{{"ranks", {{{"dp_rank", 0}, {"pp_rank", 0}}}}};
    if (!users.is_null()) attachment["users"] = users;
    return Send("PUT", fmt::format("/v1/nodes/{}/jobs/run", node), attachment.dump());
  };
  ASSERT_EQ(attach("n0", {"ann", "1000"}).status, 200);
  for (const json& other : {json{"bob", "1001"}, json(), json::array()}) {
    const http::Response refused = attach("n1", other);
    EXPECT_EQ(refused.status, 403) << other;
    EXPECT_EQ(json::parse(refused.body)["pointer"], "/users");
  }
  EXPECT_EQ(Get("/v1/jobs/run")["nodes"].size(), 1U) << "the ranks are still on n0";
  body["key"] = "by-id";
  body["user"] = "1000";
  ASSERT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
  const json both{{"ranks", {{{"dp_rank", 0}, {"pp_rank", 0}}}}, {"users", {"ann", "1000"}}};
  EXPECT_EQ(Send("PUT", "/v1/nodes/n0/jobs/by-id", both.dump()).status, 200);
  body["user"] = "ann bob";
  EXPECT_EQ(json::parse(Send("POST", "/v1/jobs", body.dump()).body)["pointer"], "/user");
}

TEST_F(ControlPlaneTest, TwoProcessesCannotBeTheSameNode) {
  PlanJob("run");
  const auto attach = [&](const std::string& instance) {
    const json ranks{{"ranks", {{{"dp_rank", 0}, {"pp_rank", 0}}}}, {"instance", instance}};
    return Send("PUT", "/v1/nodes/n0/jobs/run", ranks.dump());
  };
  const auto listen = [&](const std::string& instance) {
    return Send("GET", "/v1/nodes/n0/events?instance=" + instance);
  };
  ASSERT_EQ(attach("a").status, 200);
  auto first = std::make_unique<NodeStream>(url(), "n0", "", "a");
  ASSERT_EQ(first->Await(IsAssignment), 0);
  for (const http::Response& refused : {attach("b"), listen("b")}) {
    EXPECT_EQ(refused.status, 409) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("start one of them with another `name`"));
  }
  EXPECT_EQ(json::parse(attach("b").body)["pointer"], "/instance");
  EXPECT_EQ(Get("/v1/nodes/n0/jobs")["jobs"][0]["ranks"].size(), 1U);
  EXPECT_EQ(listen("b%20c").status, 400);
  // The same process may connect again before the server notices that the old connection is broken.
  {
    NodeStream again(url(), "n0", "", "a");
    EXPECT_EQ(again.Await(IsAssignment), 0);
  }
  // After the process has disconnected, another process gets the name at once.
  first.reset();
  EXPECT_TRUE(Comes([&] { return attach("c").status == 200; }));
  EXPECT_GE(NodeStream(url(), "n0", "", "c").Await(IsAssignment), 0);
}

// The database refuses to read assignments when the stream opens, and again after each interval.
TEST(Streams, AreReadAgainAfterAReadFailed) {
  if (!PostgresServer::WhyNot().empty()) GTEST_SKIP() << PostgresServer::WhyNot();
  PostgresServer postgres;
  const RunningControlPlane plane(
      {.database = postgres.address(), .maintenance_interval = std::chrono::milliseconds(10)});
  auto client = http::Client::Create({.server = plane.url()});
  const auto send = [&](const char* method, const std::string& target, const std::string& body) {
    return client
        ->Send(
            {.method = method, .target = target, .body = body, .content_type = ContentType(target)})
        ->status;
  };
  ASSERT_EQ(send("POST", "/v1/jobs", JobBody("run")), 201);
  ASSERT_EQ(send("PUT", "/v1/jobs/run/profile", Csv()), 202);
  ASSERT_EQ(send("PUT", "/v1/nodes/n0/jobs/run", R"({"ranks": [{"dp_rank": 0, "pp_rank": 0}]})"),
            200);
  ASSERT_TRUE(Comes([&] {
    return json::parse(*client->Fetch({.target = "/v1/jobs/run"}))["planning"] == "done";
  }));
  const auto has_failures = [&] {
    return client->Fetch({.target = "/metrics"})
               ->find("\nperseus_server_store_failures_total 0\n") == std::string::npos;
  };
  ASSERT_FALSE(has_failures());
  const auto database = *store::OpenDatabase(postgres.address());
  const auto rename = [&](const char* sql) {
    ASSERT_TRUE(database->Transact([sql](store::Transaction& transaction) -> Result<void> {
      PERSEUS_RETURN_IF_ERROR(transaction.Run(sql, {}));
      return {};
    }));
  };
  rename("ALTER TABLE assignments RENAME TO hidden");
  NodeStream stream(plane.url(), "n0");
  EXPECT_TRUE(Comes(has_failures));
  rename("ALTER TABLE hidden RENAME TO assignments");
  EXPECT_EQ(stream.Await(IsAssignment), 0);
}

TEST_F(ControlPlaneTest, RefusesImpossibleRanksWithTheirPlace) {
  ASSERT_EQ(Send("POST", "/v1/jobs", JobBody("run")).status, 201);
  const auto pointer_for = [&](const json& ranks) {
    const auto refused = Send("PUT", "/v1/nodes/n0/jobs/run", json{{"ranks", ranks}}.dump());
    EXPECT_EQ(refused.status, 400) << refused.body;
    return json::parse(refused.body)["pointer"].get<std::string>();
  };
  const json rank{{"dp_rank", 0}, {"pp_rank", 1}, {"gpu", "GPU-0"}};
  json same = rank;
  same["gpu"] = "GPU-1";
  EXPECT_EQ(pointer_for({rank, same}), "/ranks/1");
  json tensor = rank;
  tensor["tp_rank"] = 1;
  EXPECT_EQ(pointer_for(json::array({tensor})), "/ranks/0/tp_rank");
  json gpu = rank;
  gpu["gpu"] = std::string(129, 'G');
  EXPECT_EQ(pointer_for(json::array({gpu})), "/ranks/0/gpu");
  EXPECT_TRUE(Get("/v1/nodes/n0/jobs")["jobs"].empty()) << "nothing is written";
}

}  // namespace
}  // namespace perseus::server
