// An hour of an operator: three jobs, a killed training, a killed agent, a false straggler and a
// revoked token. After each event, the printed tables have to be true.
//
// The server, the nodes and the printing program are real, and they use real sockets. The test
// writes the logs of the ranks, and one number is the time of server and nodes. So the test does
// not wait until something is old, and the tables have exact times.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <map>
#include <sstream>

#include "perseus/cluster/node/node.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "tests/cli/program.h"
#include "tests/support/control_plane_fixture.h"
#include "tests/support/rank_logs.h"

namespace perseus {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// A node with the two ranks of one pipeline, and its `perseus node`.
class Box {
 public:
  Box(std::filesystem::path directory, const std::string& job, int dp_rank)
      : name(directory.filename()),
        dp_rank(dp_rank),
        directory_(std::move(directory)),
        job_(directory_ / job),
        logs_(job_) {
    std::ofstream(job_ / "server.json") << json{{"job", job}}.dump();
  }

  // Starts the process that connects the node with the server.
  void Connect(const std::string& server, const std::string& token) {
    client_.emplace(*http::Client::Create({.server = server, .token = token}));
    node_ = std::make_unique<node::Node>(
        node::NodeOptions{name, directory_, {}},
        [this](const http::Client::Outgoing& request) { return client_->Send(request); }, log_);
  }
  void StartTraining() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      logs_.Begin(NameOf(rank), ++last_pid_);
      processes_[rank] = logs_.Lock(NameOf(rank));
    }
  }
  void KillTraining() { processes_ = {}; }
  void EndTraining() {
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) logs_.Close(NameOf(rank));
    processes_ = {};
  }
  void StartAgent() { has_agent_ = true; }
  void KillAgent() { has_agent_ = false; }
  bool trains() const { return static_cast<bool>(processes_[0]); }
  bool has_agent() const { return has_agent_; }

  void Turn(Nanoseconds now) { node_->Turn(now); }
  void Receive(const json& assignment) { node_->Receive({"assignment", "", assignment.dump()}); }

  // Records a step that ends at `end`. `energy_j` is the energy of both ranks.
  void Record(std::int64_t number, Nanoseconds end, double time_s, double busy_s, double energy_j) {
    const auto in_force = protocol::ReadAssignment(job_);
    protocol::RanStep step;
    step.step = number;
    step.assignment_version = in_force && *in_force ? (*in_force)->version : 0;
    step.has_plan = step.on_plan = step.assignment_version > 0;
    step.begin = end - ToNanoseconds(time_s);
    step.end = end;
    const int mhz = has_agent_ && step.has_plan ? 1200 : 0;
    step.instructions = {{InstructionKind::kForward, 0, 0, 0, ToNanoseconds(busy_s), mhz}};
    energy_j_ += energy_j / static_cast<double>(processes_.size());
    step.energy = {{end - step.begin, end - step.begin, energy_j_}};
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) logs_.Append(NameOf(rank), step);
  }

  const std::string name;
  const int dp_rank;

 private:
  protocol::RankId NameOf(std::size_t rank) const {
    return {.dp_rank = dp_rank, .pp_rank = static_cast<int>(rank)};
  }

  std::filesystem::path directory_;
  std::filesystem::path job_;
  node::RankLogs logs_;
  std::array<FileDescriptor, 2> processes_;  // The locks that the ranks hold.
  int last_pid_ = 100;
  bool has_agent_ = true;
  double energy_j_ = 0;
  std::optional<http::Client> client_;
  std::ostringstream logged_;
  spdlog::logger log_{"node", std::make_shared<spdlog::sinks::ostream_sink_st>(logged_)};
  std::unique_ptr<node::Node> node_;
};

class OperatorTest : public CommandTest {
 protected:
  using Cells = std::map<std::string, std::string>;
  struct Job {
    std::vector<Box*> boxes = {};
    std::int64_t step = -1;
    Nanoseconds clock = 100 * kSecond;  // The ranks have their own time.
    json assignment = {};
  };

  void SetUp() override {
    Write("operator.token", RunWell("token create --scope operator --name ann" + server_));
    using std::filesystem::perms;
    std::filesystem::permissions(Directory() / "operator.token",
                                 perms::owner_read | perms::owner_write);
    server_ += " --token-file operator.token";
    synthetic::SyntheticProfileSpec spec;
    spec.pp_ranks = 2;
    Write("profile.csv", profile::FormatProfile(*synthetic::SynthesizeProfile(spec)));
    Register("gpt", 2);
    Register("llama", 1);
    Register("bloom", 1);
    for (const char* key : {"gpt", "llama", "bloom"}) {
      EXPECT_TRUE(Comes([&] { return Show(key).contains("assignment"); }));
    }
  }

  void Register(const std::string& key, int pipelines) {
    RunWell(
        fmt::format("job register {} --schedule 1f1b --pp-ranks 2 --microbatches 4 "
                    "--blocking-power 80 --pipelines {} --profile profile.csv{}",
                    key, pipelines, server_));
    for (int p = 0; p < pipelines; ++p) {
      Box& box = boxes_.emplace_back(Directory() / fmt::format("{}-{}", key, p), key, p);
      jobs_[key].boxes.push_back(&box);
      box.Connect(plane_->url(), NewToken(box));
      box.StartTraining();
    }
  }
  // Returns the secret of a token, and stores its id.
  std::string NewToken(const Box& box) {
    const json token =
        RunJson(fmt::format("token create --scope agent --node {}{}", box.name, server_));
    tokens_[box.name] = token["id"];
    return token["token"];
  }

  json Show(const std::string& key) { return RunJson("job show " + key + server_); }
  std::string Print(const std::string& command) { return RunWell(command + server_); }
  // Returns the cells of the rows that begin with `first`, by the names of the columns. A wide
  // table has several such rows. The line of dashes shows where columns begin.
  Cells Row(const std::string& command, const std::string& first) {
    std::istringstream text(Print(command));
    Cells cells;
    std::string before;
    std::string header;
    std::string dashes;
    for (std::string line; std::getline(text, line); before = line) {
      if (line.starts_with("--")) {
        EXPECT_LE(line.size(), 80U) << line;
        header = before;
        dashes = line;
      }
      if (line.starts_with(first + " ")) AddCells(header, dashes, line, cells);
    }
    return cells;
  }
  static void AddCells(const std::string& header, const std::string& dashes, const std::string& row,
                       Cells& cells) {
    for (std::size_t begin = 0; begin < dashes.size();) {
      const std::size_t end = std::min(dashes.find(' ', begin), dashes.size());
      const auto cell = [&](const std::string& line) {
        const std::string wide = begin < line.size() ? line.substr(begin, end - begin) : "";
        const std::size_t from = wide.find_first_not_of(' ');
        if (from == std::string::npos) return std::string();
        return wide.substr(from, wide.find_last_not_of(' ') + 1 - from);
      };
      cells[cell(header)] = cell(row);
      begin = dashes.find('-', end);
    }
  }
  // Returns the value of a metric of a job. Empty if the job does not have the metric.
  std::string Metric(const std::string& name, const std::string& key) {
    std::string token = Read("operator.token");
    token.pop_back();
    auto client = *http::Client::Create({.server = plane_->url(), .token = token});
    const std::string text = client.Send({.target = "/metrics"})->body;
    const std::string series = fmt::format("\nperseus_job_{}{{key=\"{}\"}} ", name, key);
    const std::size_t at = text.find(series);
    if (at == std::string::npos) return "";
    const std::size_t begin = at + series.size();
    return text.substr(begin, text.find('\n', begin) - begin);
  }
  void ExpectMetric(const std::string& name, const std::string& key, const std::string& value) {
    EXPECT_TRUE(Comes([&] { return Metric(name, key) == value; })) << name << " of " << key;
  }

  static std::string Ago(const std::string& seconds) {
    return seconds.empty() ? "" : seconds + " s ago";
  }

  void ExpectJob(const std::string& key, const std::string& status, const std::string& ranks,
                 const std::string& last_step) {
    Cells row = Row("jobs", key);
    EXPECT_EQ(row["status"], status) << key;
    EXPECT_EQ(row["ranks"], ranks) << key;
    EXPECT_EQ(row["last step"], Ago(last_step)) << key;
    // A job without fresh steps, or with ranks that have no lease, is in no mean.
    const bool is_fresh = ranks != "ended" && ranks.find("stopped") == std::string::npos;
    const bool saves = is_fresh && ranks.find("without") == std::string::npos;
    EXPECT_NE(row["step time"].empty(), is_fresh) << key;
    EXPECT_NE(row["planned saving"].empty(), saves) << key;
    EXPECT_TRUE(Comes([&] { return Metric("saving_ratio", key).empty() != saves; })) << key;
  }
  void ExpectNode(const std::string& name, const std::string& running,
                  const std::string& without_lease, const std::string& state,
                  const std::string& last_step) {
    for (const std::string& command :
         {std::string("nodes"), "job show " + name.substr(0, name.find('-'))}) {
      Cells row = Row(command, name);
      EXPECT_EQ(row["ranks"], "2") << command;
      EXPECT_EQ(row["run"], running) << command;
      EXPECT_EQ(row["no lease"], without_lease) << command;
      EXPECT_EQ(row["state"], state) << command;
      EXPECT_EQ(row["last step"], Ago(last_step)) << command;
    }
  }
  void ExpectNeed(const std::string& key, const std::string& text) {
    EXPECT_THAT(Print("job show " + key), HasSubstr("\nneeds a person: " + text));
    ExpectMetric("needs_person", key, "1");
  }
  void ExpectAllTrain() {
    ExpectJob("gpt", "planned", "4 run", "0");
    for (const char* key : {"llama", "bloom"}) ExpectJob(key, "planned", "2 run", "0");
    for (const Box& box : boxes_) ExpectNode(box.name, "2", "0", "following", "0.0");
    for (const auto& [key, job] : jobs_) {
      EXPECT_THAT(Print("job show " + key), Not(HasSubstr("needs a person")));
      ExpectMetric("needs_person", key, "0");
    }
  }

  void Pass(Nanoseconds time) {
    now_ += time;
    for (Box& box : boxes_) box.Turn(now_);
  }
  void SendAssignment(const std::string& key, Job& job) {
    const json shown = Show(key);
    job.assignment = shown["assignment"];
    json plans;
    for (const Box* box : job.boxes) {
      plans[std::to_string(box->dp_rank)] = Share(job, *box)["plan"];
    }
    for (Box* box : job.boxes) {
      box->Receive({{"job", shown["id"]},
                    {"key", key},
                    {"version", job.assignment["version"]},
                    {"from_step", job.assignment["from_step"]},
                    {"plans", plans}});
    }
  }
  static const json& Share(const Job& job, const Box& box) {
    return job.assignment.at("pipelines").at(static_cast<std::size_t>(box.dp_rank));
  }
  static void RunStep(Job& job) {
    job.step = std::max(job.step + 1, job.assignment["from_step"].get<std::int64_t>());
    std::map<const Box*, double> busy_s;
    double longest_s = 0;
    for (const Box* box : job.boxes) {
      // Without an agent, the GPUs keep the last clock of the plan.
      const double slower = box->has_agent() ? 1 : 1.13;
      busy_s[box] = slower * Share(job, *box)["time_s"].get<double>();
      longest_s = std::max(longest_s, busy_s[box]);
    }
    job.clock += ToNanoseconds(longest_s);
    for (Box* box : job.boxes) {
      if (!box->trains()) continue;
      box->Record(job.step, job.clock, longest_s, busy_s[box], Share(job, *box)["energy_j"]);
    }
  }
  // Lets 4 s pass for each step. Every job that trains ends the step.
  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      for (auto& [key, job] : jobs_) SendAssignment(key, job);
      Pass(kSecond);  // The nodes write the assignments.
      Pass(2 * kSecond);
      for (auto& [key, job] : jobs_) RunStep(job);
      Pass(kSecond);
    }
  }
  void AwaitPlanning(const std::string& key) {
    EXPECT_TRUE(Comes([&] { return Show(key)["planning"] == "done"; }));
  }

  std::atomic<Nanoseconds> now_ = 1'800'000'000 * kSecond;
  std::ostringstream logged_;  // Read it only after the end of the server.
  std::optional<server::RunningControlPlane> plane_{
      std::in_place,
      server::ControlPlaneOptions{.now = [this] { return WholeMilliseconds(now_.load()); },
                                  .maintenance_interval = std::chrono::milliseconds(200)},
      std::make_shared<spdlog::sinks::ostream_sink_mt>(logged_)};
  std::string server_ = " --server " + plane_->url();
  std::map<std::string, std::string> tokens_;  // The ids of tokens, by node.
  std::map<std::string, Job> jobs_;
  std::list<Box> boxes_;
};

TEST_F(OperatorTest, TablesAreTrueForAnHour) {
  Steps(9);
  ExpectAllTrain();

  // ---- A training is killed ----
  jobs_.at("llama").boxes[0]->KillTraining();
  Steps(6);
  ExpectJob("llama", "planned", "stopped, 0 of 2 run", "24");
  ExpectNode("llama-0", "0", "0", "stopped", "24.0");
  ExpectNeed("llama",
             "the training has stopped: 0 of 2 ranks run, and the last step ended 24 s ago");
  ExpectMetric("stopped", "llama", "1");
  ExpectJob("gpt", "planned", "4 run", "0");

  // ---- An agent is killed ----
  jobs_.at("bloom").boxes[0]->KillAgent();
  Steps(3);
  ExpectJob("bloom", "planned", "2 run, 2 without a lease", "0");
  ExpectNode("bloom-0", "2", "2", "unleased", "0.0");
  ExpectNeed("bloom",
             "2 of 2 ranks have no lease of their GPU, so their clocks do not follow the plan: "
             "bloom-0 (2 of 2 ranks) (start perseus agent there; ");
  ExpectMetric("ranks_without_lease", "bloom", "2");

  // ---- A pipeline is reported as slow, but is not ----
  const double fast_s = Show("gpt")["assignment"]["time_s"];
  EXPECT_THAT(Print("job straggler gpt 1 --slowdown 25"),
              HasSubstr("straggler: dp_rank 1 takes 25.00 % longer, in force (report)"));
  AwaitPlanning("gpt");
  EXPECT_GT(Show("gpt")["assignment"]["time_s"].get<double>(), 1.2 * fast_s);
  Steps(8);
  AwaitPlanning("gpt");
  Steps(1);
  EXPECT_THAT(Print("job show gpt"),
              HasSubstr("straggler: dp_rank 1 takes 25.00 % longer, suspended (report)"));
  EXPECT_DOUBLE_EQ(Show("gpt")["assignment"]["time_s"].get<double>(), fast_s);
  ExpectJob("gpt", "planned", "4 run", "0");

  // ---- The token of a node is revoked ----
  Print("token revoke " + tokens_.at("gpt-1"));
  Steps(6);
  ExpectJob("gpt", "planned, 1 node lost", "2 of 4 run", "0");
  ExpectNode("gpt-1", "0", "0", "lost", "24.0");
  ExpectNode("gpt-0", "2", "0", "following", "0.0");
  ExpectNeed("gpt", "1 node sent no report for 15 s: gpt-1 (check perseus node there)");

  // ---- The operator repairs everything ----
  Box& revoked = *jobs_.at("gpt").boxes[1];
  revoked.Connect(plane_->url(), NewToken(revoked));
  jobs_.at("bloom").boxes[0]->StartAgent();
  jobs_.at("llama").boxes[0]->StartTraining();
  jobs_.at("llama").step = -1;
  Print("job straggler gpt 1 --over");
  AwaitPlanning("gpt");
  Steps(9);
  ExpectAllTrain();

  // ---- A training ends ----
  jobs_.at("bloom").boxes[0]->EndTraining();
  Steps(6);
  ExpectJob("bloom", "planned", "ended", "24");
  const std::string shown = Print("job show bloom");
  EXPECT_THAT(shown, HasSubstr("\ntraining: ended at "));
  EXPECT_THAT(shown, HasSubstr("\nno nodes\n"));
  EXPECT_THAT(shown, Not(HasSubstr("needs a person")));
  ExpectMetric("stopped", "bloom", "0");
  ExpectMetric("needs_person", "bloom", "0");

  plane_.reset();
  for (const char* line : {"job=llama needs a person: the training has stopped",
                           "job=bloom needs a person: 2 of 2 ranks have no lease",
                           "job=gpt needs a person: 1 node sent no report",
                           "job=llama no longer needs a person: stopped"}) {
    EXPECT_THAT(logged_.str(), HasSubstr(line));
  }
}

}  // namespace
}  // namespace perseus
