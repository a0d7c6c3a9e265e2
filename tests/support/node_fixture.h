// The node daemon, with a function as its server and a number as its clock.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "perseus/base/json_file.h"
#include "perseus/base/units.h"
#include "perseus/cluster/node/node.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/support/rank_logs.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_plan.h"

namespace perseus::node {

using nlohmann::json;

struct FakeServer {
  bool is_away = false;
  int attach_status = 200;
  std::string attach_problem;
  std::string user;  // If not empty, only ranks of this user are attached.
  int job_status = 200;
  std::string job_problem = "{}";
  int report_status = 200;
  std::string report_answer = "{}";
  bool refuses_running = false;  // As a server of version 0.1.
  std::string job = "j-1";
  std::string plan = TinyPlan();
  std::vector<std::string> requests;  // "PUT /v1/…", without reports.
  std::vector<json> reports;

  Result<http::Response> Answer(const http::Client::Outgoing& request) {
    if (is_away) return FailAs(ErrorKind::kSystem, "cannot reach http://server: refused");
    http::Response response;
    if (request.method == "POST") return TakeReports(request.body);
    requests.push_back(request.method + " " + request.target);
    if (request.method == "PUT") {
      response.status = attach_status;
      const std::string key = request.target.substr(request.target.rfind('/') + 1);
      const std::string id = key == "gpt3-run7" ? job : "j-" + key;
      const json users = json::parse(request.body).value("users", json::array());
      if (!user.empty() && std::ranges::find(users, json(user)) == users.end()) {
        return http::Response{.status = 403, .body = R"({"title": "no", "pointer": "/users"})"};
      }
      response.body = attach_problem.empty() ? json{{"job", id}}.dump() : attach_problem;
    } else if (request.target.starts_with("/v1/jobs/")) {
      response.status = job_status;
      response.body = job_problem;
    } else if (request.target.starts_with("/v1/plans/")) {
      response.body = plan;
    }
    return response;
  }

  // Refuses what the real server refuses.
  http::Response TakeReports(const std::string& body) {
    const auto read =
        json_file::Read(body, "body", protocol::kDeepestReports, protocol::ReadReports);
    const bool is_refused = refuses_running && body.find("\"running\"") != std::string::npos;
    if (!read || !read->refused.empty() || is_refused) return {.status = 400, .body = "{}"};
    if (report_status == 200) reports.push_back(json::parse(body).at("jobs"));
    return {.status = report_status, .body = report_answer};
  }
};

class NodeTest : public testing::Test {
 protected:
  NodeTest() { Start(); }

  void Start() {
    node_ = std::make_unique<Node>(
        NodeOptions{"n7", directory_.path(), {}},
        [this](const auto& request) { return server_.Answer(request); }, log_);
  }
  RankLogs MakeJob(const std::string& name = "run", const std::string& key = "gpt3-run7") {
    const RankLogs logs(directory_ / name);
    std::ofstream(directory_ / name / "server.json") << json{{"job", key}}.dump();
    return logs;
  }
  // Rank 0 is attached.
  RankLogs MakeAttachedJob() {
    const RankLogs logs = MakeJob();
    logs.Begin({0, 0, 0}, 100);
    Turn();
    return logs;
  }
  // The job also has version 7: plan A from step 1 on.
  RankLogs MakeFollowedJob() {
    const RankLogs logs = MakeAttachedJob();
    Receive(7, 1, {{"0", kPlanA}});
    Turn();
    return logs;
  }
  void Turn(Nanoseconds after = 1'000 * kMillisecond) {
    now_ += after;
    node_->Turn(now_);
  }
  void Receive(std::int64_t version, std::int64_t from_step, const json& plans,
               const json& files = json::object(), const json& upcoming = json::array()) {
    node_->Receive({"assignment", "",
                    json{{"job", server_.job},
                         {"key", "gpt3-run7"},
                         {"version", version},
                         {"from_step", from_step},
                         {"plans", plans},
                         {"upcoming", upcoming},
                         {"files", files}}
                        .dump()});
  }
  protocol::Assignment InForce(const std::string& name = "run") const {
    const auto assignment = protocol::ReadAssignment(directory_ / name);
    return assignment && *assignment ? **assignment : protocol::Assignment();
  }

  TemporaryDirectory directory_;
  FakeServer server_;
  std::ostringstream logged_;
  spdlog::logger log_{"node", std::make_shared<spdlog::sinks::ostream_sink_st>(logged_)};
  std::unique_ptr<Node> node_;
  Nanoseconds now_ = 0;
};

}  // namespace perseus::node
