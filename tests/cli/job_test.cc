// Tests `perseus job` and `perseus jobs` with a real server.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "perseus/base/file.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kShape = " --schedule 1f1b --pp-ranks 4 --microbatches 8 ";

class JobProgramTest : public CommandTest {
 protected:
  JobProgramTest() { StartServer(); }
  ~JobProgramTest() override { kill(server_, SIGTERM); }

  Outcome Job(const std::string& arguments) const { return Run("job " + arguments + server_flag_); }
  std::string JobWell(const std::string& arguments) const {
    return RunWell("job " + arguments + server_flag_);
  }
  std::string Jobs(const std::string& arguments = "") const {
    return RunWell("jobs" + arguments + server_flag_);
  }
  std::string Audit(const std::string& arguments) const {
    return RunWell("audit " + arguments + server_flag_);
  }

  // The server has no time to write anything before its end.
  void KillAndRestartServer() {
    kill(server_, SIGKILL);
    StartServer();
  }

  std::string server_flag_;

 private:
  void StartServer() {
    Write("log", "");
    server_ = std::stoi(
        RunWell("serve --listen 127.0.0.1:0 --database sqlite:server.db 2>log & echo $!"));
    const std::string mark = "listening on 127.0.0.1:";
    EXPECT_TRUE(Comes([&] {
      const std::string log = ReadFile(Directory() / "log").value_or("");
      const std::size_t at = log.find(mark);
      if (at == log.npos || log.find('\n', at) == log.npos) return false;
      server_flag_ =
          " --server http://127.0.0.1:" + std::to_string(std::stoi(log.substr(at + mark.size())));
      return true;
    })) << Read("log");
  }

  pid_t server_ = 0;
};

TEST_F(JobProgramTest, AnUnreadableProfileRegistersNothing) {
  Write("bad.csv", "stage,instruction,frequency,time,energy\n0,forward,1410,soon,5\n");
  for (const char* name : {"bad.csv", "missing.csv"}) {
    const std::string flags = std::string("register run7 --profile ") + name + kJob;
    ExpectComplaint(Job(flags), 2, name);
  }
  EXPECT_EQ(Jobs(" --all"), "no jobs\n");
}

TEST_F(JobProgramTest, AJobKeepsTheScheduleThatWasFoundForIt) {
  MakeProfile();
  const std::string flags =
      "register run7 --profile profile.csv --schedule auto --microbatches 8 --blocking-power 80 ";
  EXPECT_THAT(JobWell(flags + "--max-in-flight 5,4,3,1 --write-schedule found.csv"),
              HasSubstr("schedule auto: 5 4 3 1 microbatches in flight"));
  // The same command finds the same schedule, and so the same job. With another memory, the job is
  // another one.
  EXPECT_THAT(JobWell(flags + "--max-in-flight 5,4,3,1"), StartsWith("job run7 is "));
  EXPECT_THAT(Job(flags).err, HasSubstr("has another registration"));
  EXPECT_TRUE(Comes([&] { return Job("plan run7").status == 0; }));
  EXPECT_THAT(JobWell("plan run7"), HasSubstr("no slowdown"));
  EXPECT_EQ(Read("found.csv").find("0F0,0F1,0F2,0F3,0F4,0B0"), 0U) << Read("found.csv");
  ExpectComplaint(Job("register run8 --schedule auto --microbatches 8 --blocking-power 80"), 2,
                  "the schedule auto needs a profile");
}

TEST_F(JobProgramTest, WithoutATokenTheErrorNamesTheFlag) {
  Run("token create --scope operator --name ann" + server_flag_);
  ExpectComplaint(Run("jobs" + server_flag_), 2,
                  "the request has no token (give a token: --token-file or PERSEUS_TOKEN_FILE");
}

// The first token needs the rights of the database, and no server.
TEST_F(JobProgramTest, ADatabaseGetsItsFirstTokenWithoutAServer) {
  const std::string create = "token create --name ann --database sqlite:other.db --scope ";
  ExpectComplaint(Run(create + "read"), 2, "--database creates tokens of scope operator");
  ExpectComplaint(Run("token create --scope operator --database db"), 2,
                  "this is not a database address");
  EXPECT_THAT(RunWell(create + "operator"), StartsWith("perseus_"));
}

TEST_F(JobProgramTest, AJobWithARefusedProfileIsNotRegistered) {
  MakeProfile();
  const Outcome refused =
      Job("register run7 --profile profile.csv --schedule 1f1b --pp-ranks 6 --microbatches 8 "
          "--blocking-power 80");
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, StartsWith("perseus: profile.csv does not fit the job, so nothing is "
                                      "registered: "));
  EXPECT_EQ(Jobs(" --all"), "no jobs\n");
  EXPECT_THAT(JobWell(std::string("register run7 --profile profile.csv") + kJob),
              HasSubstr("planning has started"));
  // A profile that does not fit does not change an existing job either.
  RunWell("synth --stages 2 -o small.csv");
  EXPECT_THAT(Job(std::string("register run7 --profile small.csv") + kJob).err,
              StartsWith("perseus: small.csv does not fit the job, so nothing is "));
  EXPECT_THAT(Jobs(), HasSubstr("run7"));
}

TEST_F(JobProgramTest, RegisterReportsWhatIsMissing) {
  const Outcome bare = Job(std::string("register bare") + kShape);
  EXPECT_EQ(bare.status, 0);
  EXPECT_THAT(bare.out, HasSubstr("; no profile yet: --profile FILE\n"));
  EXPECT_THAT(bare.err, HasSubstr("plans use 0 W"));
  EXPECT_THAT(bare.err, HasSubstr("--blocking-power"));
  Write("job.toml",
        "profile = \"profile.csv\"\n[pipeline]\nschedule = \"1f1b\"\npp_ranks = 4\n"
        "microbatches = 8\n[gpu]\nblocking_power_w = 80\n");
  EXPECT_THAT(JobWell("register named --job job.toml"),
              ContainsRegex("no profile yet: --profile .*profile.csv \\(job.toml names this file"));
}

TEST_F(JobProgramTest, RegisterSendsTheValuesOfHardwareFacts) {
  MakeProfile();
  const std::string flags =
      std::string(kShape) + "--facts " PERSEUS_SOURCE_DIR "/examples/hardware-facts.toml";
  const Outcome registered = Job("register run7 --profile profile.csv" + flags);
  EXPECT_EQ(registered.status, 0) << registered.err;
  EXPECT_EQ(registered.err, "");
  EXPECT_EQ(nlohmann::json::parse(JobWell("show run7 --json"))["gpu"], "NVIDIA A100-SXM4-80GB");
  ExpectComplaint(Job(std::string("register run7 --gpu \"NVIDIA A100-SXM4-80GB\" ") + kShape +
                      "--blocking-power 86.25 --switch-latency 1"),
                  3,
                  "has another registration: gpu.most_changes_per_s 10.0, here none; "
                  "gpu.switch_latency_ms 12.5, here 1.0 (end it first: perseus job end run7, or "
                  "choose another key)");

  const Outcome other = Job("register run8 --gpu H200" + flags);
  EXPECT_EQ(other.status, 0);
  EXPECT_EQ(other.err,
            "perseus: warning: the hardware facts are of the GPU NVIDIA A100-SXM4-80GB, but the "
            "job has the GPU H200 (give the facts of its nodes)\n");
  EXPECT_EQ(nlohmann::json::parse(JobWell("show run8 --json"))["gpu"], "H200");
}

TEST_F(JobProgramTest, TargetsAreRequiredAndShownInWords) {
  JobWell(std::string("register run7 --price 0.12 2") + kJob);
  ExpectComplaint(Job("target run7"), 2, "--energy-budget");
  const std::string words = "least cost at 0.12 $/kWh and 2 $/GPU-hour";
  EXPECT_THAT(Jobs(), HasSubstr(words));
  EXPECT_THAT(JobWell("show run7"), HasSubstr("target: " + words));
  JobWell("target run7 --deadline 1");
  EXPECT_THAT(Jobs(), HasSubstr("deadline 1 s"));
}

class JobCapTest : public JobProgramTest {
 protected:
  JobCapTest() {
    MakeProfile();
    const std::string flags = " --profile profile.csv" + std::string(kJob);
    JobWell("register big --pipelines 3" + flags);
    JobWell("register small" + flags);
    // The server computes the frontiers.
    EXPECT_TRUE(Comes([&] { return Job("cap big small --power 1MW --dry-run").status == 0; }));
    now_w_ = Cap("big small --power 1MW --dry-run")["power_w"];
  }

  nlohmann::json Cap(const std::string& arguments) const {
    return nlohmann::json::parse(JobWell("cap " + arguments + " --json"));
  }
  nlohmann::json TargetOf(const std::string& job) const {
    return nlohmann::json::parse(JobWell("show " + job + " --json"))["target"];
  }
  // Whether the plan in force is for a cap.
  bool IsCapped(const std::string& job) const {
    return nlohmann::json::parse(JobWell("show " + job + " --json"))["assignment"]["target"]
        .get<std::string>()
        .starts_with("power cap");
  }
  // A part of the power that both jobs draw without a cap.
  std::string Part(double part) const { return fmt::format(" --power {:.0f}W ", part * now_w_); }

  double now_w_ = 0;
};

TEST_F(JobCapTest, JobsShareTheCap) {
  const auto caps = Cap("big small --until 1h" + Part(0.85));
  EXPECT_NEAR(caps["power_w"].get<double>(), 0.85 * now_w_, 1);
  EXPECT_GT(caps["lost_gpus"], 0.01);
  EXPECT_NEAR(caps["lost_gpus"].get<double>(), caps["least_lost_gpus"].get<double>(), 1e-6);
  double planned_w = 0;
  for (const auto& row : caps["jobs"]) {
    const std::string job = row["job"];
    const auto target = TargetOf(job);
    EXPECT_EQ(target["kind"], "power_cap");
    EXPECT_EQ(target["value"], row["target"]["value"]);
    EXPECT_EQ(target["then"]["kind"], "slowdown");
    planned_w += (job == "big" ? 3 : 1) * target["value"].get<double>();
  }
  EXPECT_LE(planned_w, 0.85 * now_w_ + 1);
  EXPECT_GT(planned_w, 0.849 * now_w_);
  EXPECT_THAT(JobWell("show big"),
              ContainsRegex("target: power cap .* until .*Z, then no slowdow"));
  EXPECT_THAT(Audit("--action job.target --limit 2 --json"), HasSubstr("\"then\":{\"kind\""));
  // The jobs are alike, so each GPU gets as much.
  const auto& shares = caps["jobs"];
  EXPECT_NEAR(shares[0]["cap_w"].get<double>() / shares[1]["cap_w"].get<double>(), 3, 0.3);
}

// The server that set the cap was killed. The next one gives it back, once.
TEST_F(JobCapTest, ACapIsGivenBackAfterARestart) {
  JobWell("target small --deadline 5");
  Cap("big small --until 3s" + Part(0.9));
  EXPECT_EQ(TargetOf("small")["kind"], "power_cap");
  KillAndRestartServer();
  EXPECT_TRUE(Comes([&] { return TargetOf("big")["kind"] == "slowdown"; }));
  EXPECT_TRUE(Comes([&] { return TargetOf("small")["kind"] == "deadline"; }));
  std::istringstream entries(Audit("--action job.target --limit 100 --json"));
  int given_back = 0;
  for (std::string entry; std::getline(entries, entry);) {
    given_back += entry.find("the target before has expired") != entry.npos ? 1 : 0;
  }
  EXPECT_EQ(given_back, 2);
}

TEST_F(JobCapTest, TheLeastPowerOfTheErrorIsPossible) {
  const Outcome refused = Job("cap big small --power 10W");
  ExpectComplaint(refused, 3, "a cap of 10 W is below the least power of the jobs, ");
  const std::size_t at = refused.err.find("jobs, ") + 6;
  const std::string least = refused.err.substr(at, refused.err.find(" W (allow") - at);
  const auto caps = Cap("big small --power " + least + "W");
  for (const auto& row : caps["jobs"]) EXPECT_EQ(row["is_set"], true);
  EXPECT_TRUE(Comes([&] { return IsCapped("big"); }));
}

TEST_F(JobCapTest, ADryRunChangesNothing) {
  const std::string shown = JobWell("cap big small --dry-run" + Part(0.9));
  std::istringstream lines(shown);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80U) << line;
  EXPECT_THAT(shown, ContainsRegex("big +[0-9.]+ W +[0-9.]+ W +[0-9.]+ W +[0-9.]+ %"));
  EXPECT_THAT(shown, ContainsRegex("\nlost: the work of [0-9.]+ of 16 GPUs"));
  EXPECT_THAT(shown, HasSubstr("\nno target is set (--dry-run)\n"));
  EXPECT_EQ(TargetOf("big")["kind"], "slowdown");
}

// A plan for such a cap would only be faster than the target, and need more energy.
TEST_F(JobCapTest, ACapAboveThePowerOfTheJobsChangesNothing) {
  const std::string shown = JobWell("cap big small --power 1MW");
  EXPECT_THAT(shown, HasSubstr("of 1000.00 kW: the cap changes nothing, so no target is set\n"));
  EXPECT_EQ(Cap("big small --power 1MW")["jobs"][0]["is_set"], false);
  EXPECT_EQ(TargetOf("big")["kind"], "slowdown");
  // A higher cap replaces a lower one.
  Cap("big small" + Part(0.9));
  EXPECT_EQ(Cap("big small --power 1MW")["jobs"][0]["is_set"], true);
  EXPECT_GT(TargetOf("big")["value"], now_w_);
}

TEST_F(JobCapTest, AMistakeChangesNothing) {
  JobWell("register bare" + std::string(kShape) + "--blocking-power 80");
  const std::string cap = Part(0.9);
  ExpectComplaint(Job("cap big nobody" + cap), 2, "nobody");
  ExpectComplaint(Job("cap big bare" + cap), 2,
                  "job bare has no profile, so its power is unknown (measure it with perseus tune");
  const std::string id = nlohmann::json::parse(JobWell("show big --json"))["id"];
  ExpectComplaint(Job("cap big " + id + cap), 2, "big and " + id + " are the same job");
  ExpectComplaint(Job("cap big small --power 10"), 3, "a cap of 10 W is below ");
  ExpectComplaint(Job("cap big --power 2GW"), 2, "\"2GW\" is not a power (give a number above 0");
  ExpectComplaint(Job("cap big --until 2020-01-01T20:00" + cap), 2, "is not in the future");
  ExpectComplaint(Job("cap big"), 2, "--power");
  JobWell("end small");
  ExpectComplaint(Job("cap big small" + cap), 2, "small has ended");
  EXPECT_EQ(TargetOf("big")["kind"], "slowdown");
}

TEST_F(JobProgramTest, RemediesAreCommands) {
  const Outcome unknown = Job("show nobody");
  ExpectComplaint(unknown, 2, "perseus jobs --all");
  EXPECT_THAT(unknown.err, Not(HasSubstr("/v1")));
}

// Tests that need no server.
using JobUsageTest = ProgramTest;

TEST_F(JobUsageTest, ErrorsNameTheHelpOfTheWholeCommand) {
  const Outcome slow = Run("job straggler g 1 --slowdown -1");
  ExpectComplaint(slow, 2, "see perseus job straggler --help");
  EXPECT_THAT(slow.err, Not(HasSubstr("()")));
  ExpectComplaint(Run("job straggler g 1 --slowdwn 2"), 2, "did you mean --slowdown?");
  ExpectComplaint(Run("job retarget g"), 2, "did you mean target?");
  ExpectComplaint(Run("job list"), 2, "perseus jobs lists the jobs");
  ExpectComplaint(Run("job straggler g 1 --slowdown 25p"), 2,
                  "is not a number from 0 to 9900 (percent longer, such as 25 or 25%; or 1.25x");
}

TEST_F(JobUsageTest, APortAloneIsNotAnAddress) {
  ExpectComplaint(Run("serve --listen 7433"), 2, "7433 is not an address (expected HOST:PORT");
}

TEST_F(JobProgramTest, ShowFoldsAssignments) {
  RunWell("synth --gpu a100 --stages 4 -o profile.csv");
  JobWell("register run --pipelines 16 --profile profile.csv" + std::string(kShape) +
          "--blocking-power 80");
  const auto show = [&] { return JobWell("show run"); };
  ASSERT_TRUE(Comes([&] {
    const std::string shown = show();
    const bool is_planned = shown.find("assignment 1") != std::string::npos;
    EXPECT_NE(is_planned, shown.find("\nthe server computes the plan\n") != std::string::npos);
    return is_planned;
  }));
  EXPECT_THAT(show(), ContainsRegex("0-15 +p-"));
  JobWell("straggler run 3 --slowdown 30");
  ASSERT_TRUE(Comes([&] { return show().find("assignment 2") != std::string::npos; }));
  EXPECT_THAT(show(), ContainsRegex("0-2 +p-"));
  EXPECT_THAT(show(), ContainsRegex("4-15 +p-"));
  JobWell("straggler run 3 --over");
  EXPECT_THAT(JobWell("stragglers run"), ContainsRegex("3 +report +30.00 % .* withdrawn"));
}

// In version 0.1, the flag was a factor here, but percent in `perseus plan`.
TEST_F(JobProgramTest, TheSlowdownOfAStragglerIsInPercent) {
  JobWell("register run" + std::string(kShape) + "--blocking-power 80");
  for (const char* quarter : {"25", "25%", "1.25x"}) {
    EXPECT_THAT(JobWell("straggler run 0 --slowdown " + std::string(quarter)),
                HasSubstr("straggler: dp_rank 0 takes 25.00 % longer"));
  }
  ExpectComplaint(Job("straggler run 0 --slowdown 1.25"), 2,
                  "1.25 means 1.25 percent longer, which is unlikely (give 1.25% to mean this, "
                  "or 1.25x)");
}

TEST_F(JobProgramTest, ShowSaysWhyThereIsNoNode) {
  JobWell("register run" + std::string(kShape) + "--blocking-power 80");
  EXPECT_THAT(JobWell("show run"), HasSubstr("\nno nodes yet (they attach when ranks run"));
  JobWell("end run");
  EXPECT_THAT(JobWell("show run"), HasSubstr("\nno nodes\n"));
}

// The schemas describe the server's answers (docs/server.md, "JSON"). server.contract checks these
// answers.
TEST_F(JobProgramTest, EveryChangePrintsJson) {
  const auto printed = [&](const std::string& arguments) {
    return nlohmann::json::parse(JobWell(arguments + " --json"));
  };
  EXPECT_EQ(printed("register run7" + std::string(kShape) + "--blocking-power 80")["key"], "run7");
  const auto target = printed("target run7 --slowdown 5");
  EXPECT_EQ(target["target"]["kind"], "slowdown");
  EXPECT_EQ(target["name"], "5 % slowdown");
  EXPECT_EQ(printed("straggler run7 0 --slowdown 50")["slowdown"], 1.5);
  EXPECT_EQ(printed("straggler run7 0 --over")["deleted"], true);
  EXPECT_EQ(printed("end run7")["ended"], true);
  EXPECT_THAT(Audit("--limit 1"), HasSubstr("job.end"));
  const std::string all = Audit("--all --json");
  EXPECT_EQ(nlohmann::json::parse(all.substr(0, all.find('\n')))["number"], 1);
  EXPECT_GE(std::ranges::count(all, '\n'), 5);
}

}  // namespace
}  // namespace perseus
