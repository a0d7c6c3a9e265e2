// Tests jobs, profiles, plans, and the clients of Zeus.
#include "perseus/cluster/server/control_plane.h"

#include "tests/support/control_plane_fixture.h"

namespace perseus::server {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ControlPlaneTest, PlansAJobWithAProfile) {
  PlanJob("run");
  const json job = Get("/v1/jobs/run");
  EXPECT_EQ(job["status"], "planned");
  EXPECT_GT(job["saving_percent"].get<double>(), 3);
  EXPECT_LE(job["slowdown_percent"].get<double>(), 1e-9);
  EXPECT_EQ(Get("/v1/jobs/run/frontier")["profile_version"], 1);
  const json current = Get("/v1/jobs/run/plans/current");
  EXPECT_EQ(current["format"], "perseus-plan");
  const json slower = Get("/v1/jobs/run/plans/slowdown-10");
  EXPECT_GT(slower["time_s"], current["time_s"]);
  EXPECT_LT(slower["energy_j"], current["energy_j"]);
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/nonsense").status, 404);
  EXPECT_EQ(Send("GET", "/v1/jobs/run/plans/deadline-0.001s").status, 422);
  EXPECT_EQ(Send("PUT", "/v1/jobs/run/target", R"({"kind": "slowdown", "value": 10})").status, 200);
  EXPECT_TRUE(
      Comes([&] { return Get("/v1/jobs/run")["assignment"]["target"] == "10 % slowdown"; }));
}

TEST_F(ControlPlaneTest, RefusesAnImpossibleTarget) {
  PlanJob("run");
  ASSERT_TRUE(Comes([&] { return Send("GET", "/v1/jobs/run/frontier").status == 200; }));
  const json frontier = Get("/v1/jobs/run/frontier");
  const double least_s = frontier["points"][0]["time_s"];
  for (const char* impossible :
       {R"({"kind": "deadline", "value": 0.001})", R"({"kind": "energy_budget", "value": 1})",
        R"({"kind": "power_cap", "value": 1})"}) {
    const auto refused = Send("PUT", "/v1/jobs/run/target", impossible);
    EXPECT_EQ(refused.status, 422) << refused.body;
    EXPECT_THAT(refused.body, HasSubstr("the least is "));
  }
  EXPECT_EQ(Get("/v1/jobs/run")["target"]["kind"], "slowdown");
  EXPECT_EQ(Get("/v1/jobs/run")["status"], "planned");
  const json possible{{"kind", "deadline"}, {"value", 1.01 * least_s}};
  EXPECT_EQ(Send("PUT", "/v1/jobs/run/target", possible.dump()).status, 200);
}

// Slower clocks draw less power than the plan of least energy, although they need more energy.
TEST_F(ControlPlaneTest, APowerCapBelowTheLeastEnergyIsATarget) {
  PlanJob("run");
  ASSERT_TRUE(Comes([&] { return Send("GET", "/v1/jobs/run/frontier").status == 200; }));
  const json frontier = Get("/v1/jobs/run/frontier");
  const json& least = frontier["points"][frontier["least_energy"].get<std::size_t>()];
  const json& slowest = frontier["points"].back();
  const auto power_of = [](const json& point) {
    return point["energy_j"].get<double>() / point["time_s"].get<double>();
  };
  ASSERT_LT(power_of(slowest), 0.99 * power_of(least));
  const json cap{{"kind", "power_cap"}, {"value", 0.5 * (power_of(least) + power_of(slowest))}};
  const auto answer = Send("PUT", "/v1/jobs/run/target", cap.dump());
  EXPECT_EQ(answer.status, 200) << answer.body;
}

TEST_F(ControlPlaneTest, ATargetThatExpiresShowsWhatComesThen) {
  PlanJob("run");
  const auto set = [this](const std::string& body) {
    return Send("PUT", "/v1/jobs/run/target", body);
  };
  const auto answer = set(R"({"kind": "slowdown", "value": 20, "expires_in": 3600})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const json target = Get("/v1/jobs/run")["target"];
  EXPECT_EQ(json::parse(answer.body)["target"], target);
  EXPECT_EQ(target["value"], 20);
  EXPECT_THAT(target["expires"].get<std::string>(), ::testing::EndsWith("Z"));
  EXPECT_EQ(target["then"]["value"], 0);
  for (const char* wrong : {"0", "-1", "1e9", "\"soon\""}) {
    const auto refused =
        set(fmt::format(R"({{"kind": "slowdown", "value": 5, "expires_in": {}}})", wrong));
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(json::parse(refused.body)["pointer"], "/expires_in");
  }
  EXPECT_EQ(Get("/v1/jobs/run")["target"], target);
  // The next one expires soon, and returns to the registered target.
  ASSERT_EQ(set(R"({"kind": "slowdown", "value": 10, "expires_in": 1})").status, 200);
  const json registered{{"kind", "slowdown"}, {"value", 0.0}};
  EXPECT_TRUE(Comes([&] { return Get("/v1/jobs/run")["target"] == registered; }));
  EXPECT_TRUE(Comes([&] { return Get("/v1/jobs/run")["assignment"]["target"] == "no slowdown"; }));
}

// Forwards save energy at the low clock, and backwards at the high one. So with few clock changes,
// the least energy is far above the frontier, which ignores them.
TEST_F(ControlPlaneTest, ATargetThatTheLimitOfClockChangesMissesIsRefused) {
  json body = json::parse(JobBody("run"));
  body["max_switches"] = 0;
  body["schedule"]["pp_ranks"] = 1;
  ASSERT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
  ASSERT_EQ(Send("PUT", "/v1/jobs/run/profile",
                 "stage,instruction,frequency,time,energy\n"
                 "0,forward,1400,0.100,30\n0,forward,1000,0.102,15\n"
                 "0,backward,1400,0.200,30\n0,backward,1000,0.280,36\n")
                .status,
            202);
  ASSERT_TRUE(Comes([&] { return Send("GET", "/v1/jobs/run/frontier").status == 200; }));
  const json frontier = Get("/v1/jobs/run/frontier");
  const double least_j =
      frontier["points"][frontier["least_energy"].get<std::size_t>()]["energy_j"];
  for (const json& target :
       {json{{"kind", "energy_budget"}, {"value", 1.1 * least_j}},
        json{{"kind", "energy_budget"}, {"value", 1.5 * least_j}}, json{{"kind", "edp"}}}) {
    const bool is_possible = target != json{{"kind", "energy_budget"}, {"value", 1.1 * least_j}};
    const auto answer = Send("PUT", "/v1/jobs/run/target", target.dump());
    ASSERT_EQ(answer.status, is_possible ? 200 : 422) << answer.body;
    ASSERT_TRUE(Comes([&] { return Get("/v1/jobs/run")["planning"] == "done"; }));
    EXPECT_EQ(Get("/v1/jobs/run")["status"], "planned") << target;
  }
}

// The frontier is a lower bound. Plans with real clocks may not reach it. Nevertheless, every
// accepted target has a plan.
TEST_F(ControlPlaneTest, ATargetJustAboveTheFrontierIsRefusedOrPlanned) {
  PlanJob("run");
  ASSERT_TRUE(Comes([&] { return Send("GET", "/v1/jobs/run/frontier").status == 200; }));
  const json frontier = Get("/v1/jobs/run/frontier");
  const json& least = frontier["points"][frontier["least_energy"].get<std::size_t>()];
  const double energy_j = least["energy_j"];
  const double power_w = energy_j / least["time_s"].get<double>();
  int refused = 0;
  for (const double above : {0.0, 1e-9, 1e-7, 1e-5, 1e-3, 1e-2}) {
    for (const json& target : {json{{"kind", "energy_budget"}, {"value", energy_j * (1 + above)}},
                               json{{"kind", "power_cap"}, {"value", power_w * (1 + above)}}}) {
      const auto answer = Send("PUT", "/v1/jobs/run/target", target.dump());
      ASSERT_THAT(answer.status, ::testing::AnyOf(200, 422)) << answer.body;
      if (answer.status == 422) {
        ++refused;
        EXPECT_EQ(json::parse(answer.body)["pointer"], "/value");
        continue;
      }
      ASSERT_TRUE(Comes([&] { return Get("/v1/jobs/run")["planning"] == "done"; }));
      EXPECT_EQ(Get("/v1/jobs/run")["status"], "planned") << target;
    }
  }
  EXPECT_GT(refused, 0);
}

// The energy of fixed instructions is the same as with `perseus plan`.
TEST_F(ControlPlaneTest, FixedInstructionsHaveTheRegisteredEnergy) {
  const auto energy = [this](const std::string& key, const json& fixed) {
    json body = json::parse(JobBody(key));
    body["fixed"] = fixed;
    EXPECT_EQ(Send("POST", "/v1/jobs", body.dump()).status, 201);
    EXPECT_EQ(Send("PUT", "/v1/jobs/" + key + "/profile", Csv()).status, 202);
    return Get("/v1/jobs/" + key + "/plans/slowdown-10")["baseline"]["energy_j"].get<double>();
  };
  // By default, four GPUs draw 80 W for 0.2 s: 64 J.
  const double by_default = energy("default", {{"all_reduce_s", 0.2}});
  EXPECT_NEAR(energy("registered", {{"all_reduce_s", 0.2}, {"all_reduce_j", 30}}) - by_default,
              4 * 14, 1e-6);
}

TEST_F(ControlPlaneTest, AnswersClientsOfZeus) {
  PlanJob("run");
  const auto registered = Send("POST", "/register_job",
                               R"({"job_id": "", "pp_degree": 4, "dp_degree": 2, "tp_degree": 1,
                                   "world_size": 8, "job_metadata": "run"})");
  ASSERT_EQ(registered.status, 200) << registered.body;
  const std::string id = json::parse(registered.body);
  EXPECT_EQ(registered.body, "\"" + id + "\"");
  // The answer arrives when all ranks have registered.
  http::Response schedule;
  std::thread waits([&] {
    auto client = http::Client::Create({.server = url()});
    auto response = client->Send({.target = "/schedule/" + id + "?rank=5"});
    if (response) schedule = *std::move(response);
  });
  for (int rank = 0; rank < 8; ++rank) {
    const json body{{"rank", rank},
                    {"dp_rank", rank / 4},
                    {"pp_rank", rank % 4},
                    {"tp_rank", 0},
                    {"available_frequencies", {1410, 1200, 1005, 795, 210}}};
    const auto answer = Send("POST", "/register_rank/" + id, body.dump());
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(answer.body, "null");
  }
  waits.join();
  ASSERT_EQ(schedule.status, 200) << schedule.body;
  EXPECT_THAT(schedule.body, ::testing::StartsWith(R"({"rank":5,"frequencies":[["forward",)"));
  EXPECT_THAT(schedule.body, Not(HasSubstr(" ")));
  const json frequencies = json::parse(schedule.body)["frequencies"];
  EXPECT_EQ(frequencies.size(), 16U);
  for (const json& entry : frequencies) {
    const int mhz = entry[1];
    EXPECT_TRUE(mhz == 1410 || mhz == 1200 || mhz == 1005 || mhz == 795 || mhz == 210) << mhz;
  }
  const auto result = Send("POST", "/result/" + id,
                           R"({"rank": 5, "iter_time": [3.1], "iter_energy": [900],
                               "time_breakdown": {"forward": [[0.1]]}, "energy_breakdown": {}})");
  EXPECT_EQ(result.status, 200) << result.body;
  EXPECT_EQ(result.body, "null");
}

TEST_F(ControlPlaneTest, AnEndedJobAcceptsNoRanksAndResults) {
  PlanJob("run");
  const std::string id = Get("/v1/jobs/run")["id"];
  ASSERT_EQ(Send("POST", "/v1/jobs/run/end", "{}").status, 200);
  EXPECT_EQ(Send("POST", "/register_rank/" + id,
                 R"({"rank": 0, "dp_rank": 0, "pp_rank": 0, "tp_rank": 0,
                     "available_frequencies": [1410]})")
                .status,
            409);
  EXPECT_EQ(
      Send("POST", "/result/" + id, R"({"rank": 0, "iter_time": [], "iter_energy": []})").status,
      409);
  EXPECT_TRUE(Get("/v1/jobs")["jobs"].empty());
  EXPECT_EQ(Get("/v1/jobs?all=1")["jobs"].size(), 1U);
  EXPECT_EQ(Send("POST", "/v1/jobs", JobBody("run", 3)).status, 201) << "the key is free again";
}

}  // namespace
}  // namespace perseus::server
