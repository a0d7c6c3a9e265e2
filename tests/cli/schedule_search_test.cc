// Tests `perseus schedule search` and `perseus plan --schedule auto`.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ScheduleSearchTest : public CommandTest {
 protected:
  ScheduleSearchTest() { MakeProfile(); }
};

constexpr const char* kSearched = " profile.csv --microbatches 8 --blocking-power 84 ";

TEST_F(ScheduleSearchTest, ShowsWhatMemoryBuys) {
  EXPECT_THAT(
      RunWell("schedule search" + std::string(kSearched)),
      AllOf(HasSubstr("1f1b at maximum frequency:"), HasSubstr("in flight"), HasSubstr("\n+1"),
            HasSubstr("One more microbatch in flight on pp_rank"), HasSubstr("at no slowdown.")));
}

TEST_F(ScheduleSearchTest, WritesSchedulesThatSaveWhatTheRowsSay) {
  const auto search = RunJson("schedule search" + std::string(kSearched) + kInstantChanges +
                              "--more 0,1 --json -o schedules");
  ASSERT_EQ(search["rows"].size(), 2U);
  for (const auto& row : search["rows"]) {
    const std::string file =
        "schedules/more-" + std::to_string(row["more_in_flight"].get<int>()) + ".csv";
    const auto summary = RunJson(
        "plan profile.csv --blocking-power 84 --per-instruction --no-frontier --effort 0 "
        "--schedule-file " +
        file + " --deadline " + search["reference"]["time_s"].dump());
    const auto& plans = summary["plans"];
    EXPECT_TRUE(std::ranges::any_of(
        plans, [&](const auto& plan) { return plan["energy_j"] == row["energy_j"]; }))
        << file << '\n'
        << plans.dump(2) << '\n'
        << row.dump(2);
  }
  EXPECT_THAT(Read("schedules/more-1.txt"),
              HasSubstr("pp_rank 0: 5 forwards before its first backward; 5 F, 3 (B F), 5 B\n"));
}

TEST_F(ScheduleSearchTest, TheReportComparesWithTheUsualScheduleAsTheTableDoes) {
  const auto search =
      RunJson("schedule search" + std::string(kSearched) + "--more 0,1 --json -o schedules");
  if (Files("schedules") == Results("schedules")) GTEST_SKIP() << "this build has no page (no npm)";
  const nlohmann::json data = DataOf("schedules/report.html");
  EXPECT_EQ(data["compared_with"]["schedule"], "1f1b");
  const nlohmann::json& plan = data["plans"].at(0);
  EXPECT_EQ(plan["target"], "no slowdown");
  EXPECT_LE(plan["time_ns"], data["compared_with"]["time_ns"]);
  const double reference_j = data["compared_with"]["energy_j"];
  EXPECT_DOUBLE_EQ(1 - plan["energy_j"].get<double>() / reference_j, search["rows"][1]["saving"]);
  EXPECT_EQ(data["job"]["schedule"], "+1");
}

TEST_F(ScheduleSearchTest, TheRowsMayBeChosen) {
  const std::string search = "schedule search" + std::string(kSearched) + "--more ";
  // Each row has its own memory, for any order of the values in the flag.
  const auto rows = RunJson(search + "2,0,2 --json")["rows"];
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[0]["more_in_flight"], 0);
  EXPECT_EQ(rows[0]["in_flight"][0], 4);
  EXPECT_EQ(rows[1]["more_in_flight"], 2);
  // The output has no sentence about memory that was not examined.
  EXPECT_THAT(RunWell(search + "2"),
              AllOf(HasSubstr("2 more microbatches in flight"), Not(HasSubstr("nothing more")),
                    Not(HasSubstr("No other order"))));
  EXPECT_THAT(RunWell(search + "0"), Not(HasSubstr("nothing more")));
}

TEST_F(ScheduleSearchTest, CountsTheMemoryInBytes) {
  const std::string search = "schedule search" + std::string(kSearched) + "--more 0,1 ";
  // With 1f1b, stage 0 holds 4 * 1 GiB.
  const auto json = RunJson(search +
                            "--activation-memory 1024,1024,1024,1024 --memory 10 --model-memory 4 "
                            "--json -o schedules");
  const auto& fitting = json["fitting"];
  for (const auto& in_flight : fitting["in_flight"]) EXPECT_LE(in_flight.get<int>(), 6);
  EXPECT_EQ(fitting["in_flight"][0], 6);
  EXPECT_GE(fitting["saving"], json["rows"][1]["saving"]);
  EXPECT_THAT(Files("schedules"), Contains("fits.csv"));
  EXPECT_THAT(RunWell(search + "--activation-memory 512"),
              AllOf(HasSubstr("2.00 GiB"), HasSubstr("0.50 GiB more on a GPU")));
  ExpectComplaint(Run(search + "--memory 10"), 2, "add --activation-memory");
  ExpectComplaint(Run(search + "--activation-memory 1024 --memory 3 --model-memory 2"), 3,
                  "no known schedule");
}

TEST_F(ScheduleSearchTest, PlansTheScheduleThatItFinds) {
  const std::string job = std::string(kSearched) + "--per-instruction --no-frontier --json ";
  const auto fixed = RunJson("plan --schedule 1f1b" + job);
  const auto found = RunJson("plan --schedule auto --max-in-flight 5,4,3,1" + job + "-o out");
  EXPECT_EQ(found["job"]["schedule"], "auto");
  EXPECT_LT(found["plans"].back()["energy_j"], fixed["plans"].front()["energy_j"]);
  EXPECT_LE(found["plans"].back()["time_s"], fixed["baseline"]["time_s"]);
  // The plan contains its schedule, so other verbs need nothing else.
  RunWell("evaluate out/plans/no-slowdown.json");
  // The training needs only the schedule. A run that reads the schedule does not remove it.
  EXPECT_THAT(Read("out/schedule.txt"),
              HasSubstr("pp_rank 0: 5 forwards before its first backward"));
  const std::string csv = Read("out/schedule.csv");
  const std::string replan =
      "plan profile.csv --blocking-power 84 --no-frontier --per-instruction ";
  const auto read = RunJson(replan + "--schedule-file out/schedule.csv --json -o out");
  EXPECT_EQ(read["plans"].front()["energy_j"], found["plans"].front()["energy_j"]);
  EXPECT_EQ(Read("out/schedule.csv"), csv);
  RunWell(replan + "--schedule 1f1b --microbatches 8 -o out");
  EXPECT_FALSE(std::filesystem::exists(Directory() / "out/schedule.csv"));
}

TEST_F(ScheduleSearchTest, SaysWhatItComparesWhereThePlansHaveALimit) {
  const std::string job = std::string("plan --schedule auto --max-in-flight 5,4,3,1 ") + kSearched;
  constexpr const char* kCompared = "This compares first looks without a limit of clock changes: ";
  EXPECT_THAT(RunWell(job + "--no-frontier"), HasSubstr(kCompared));
  EXPECT_THAT(RunWell(job + "--no-frontier --per-instruction"), Not(HasSubstr(kCompared)));
}

TEST_F(ScheduleSearchTest, PlansWithinTheBytesOfTheGpus) {
  const std::string job = kSearched;
  const std::string memory = "--memory 10 --activation-memory 1024 --model-memory 5,6,7,8.5 ";
  const std::string flags = "plan --schedule auto --no-frontier --per-instruction " + memory + job;
  EXPECT_THAT(
      RunWell(flags),
      AllOf(HasSubstr("schedule auto: 5 4 3 1 microbatches in flight on pp_ranks 0 to 3"),
            HasSubstr("The bytes of activations are given."), HasSubstr("1.00 GiB more on a GPU")));
  // The same numbers may be in the job file, and in the profile.
  Write("job.toml",
        "profile = \"profile.csv\"\n[pipeline]\nschedule = \"auto\"\nmicrobatches = 8\n"
        "[gpu]\nblocking_power_w = 84\n"
        "[memory]\ngpu_gib = 10\nactivation_mib = 1024\nmodel_gib = [5, 6, 7, 8.5]\n");
  const auto same = [](const nlohmann::json& a, const nlohmann::json& b) {
    return a["plans"] == b["plans"];
  };
  const auto given = RunJson(flags + "--json");
  EXPECT_TRUE(same(given, RunJson("plan --job job.toml --no-frontier --per-instruction --json")));
  // A number of microbatches in the flag replaces the bytes in the file.
  EXPECT_THAT(RunWell("plan --job job.toml --no-frontier --max-in-flight 4,3,2,1"),
              HasSubstr("schedule auto: 4 3 2 1"));
}

TEST_F(ScheduleSearchTest, TheModelOfAnArchitectureHasItsMemory) {
  RunWell("synth --model gpt3-xl --gpu a100-pcie --stages 4 -o model.csv");
  EXPECT_THAT(Read("model.csv"), HasSubstr(",activation_bytes,model_bytes,memory_source\n"));
  const auto search = RunJson(
      "schedule search model.csv --microbatches 8 --blocking-power 84 --more 0,1 --memory 80 "
      "--json");
  EXPECT_EQ(search["activation_bytes"].size(), 4U);
  EXPECT_EQ(search["available_bytes"].size(), 4U);
  EXPECT_EQ(search["memory_source"],
            "The bytes of activations are modeled. Those of weights, gradients and optimizer "
            "states are modeled.");
  EXPECT_TRUE(search.contains("fitting"));
}

TEST_F(ScheduleSearchTest, DrawsWhatMemoryBuys) {
  const std::string answer = RunWell("schedule search" + std::string(kSearched) +
                                     "--more 0,1 -o schedules --figure memory.svg --figure "
                                     "schedules.svg --figure orders.svg");
  if (answer.find("report.html") == std::string::npos) GTEST_SKIP() << "no report page";
  EXPECT_THAT(Read("memory.svg"), HasSubstr("no schedule in this memory saves more"));
  EXPECT_THAT(Read("schedules.svg"),
              AllOf(HasSubstr(">1f1b, planned: "), HasSubstr(">+1, planned: ")));
  EXPECT_THAT(Read("orders.svg"), HasSubstr(">+1, at maximum frequency: "));
  EXPECT_THAT(Read("schedules/report.html"), HasSubstr("\"schedule_tradeoff\":{"));
  RunWell("plan --schedule auto --max-in-flight 5 --no-frontier -o out --figure auto-memory.svg" +
          std::string(kSearched));
  EXPECT_THAT(Read("out/report.html"), HasSubstr("\"schedule_tradeoff\":{"));
  EXPECT_THAT(Read("auto-memory.svg"), HasSubstr("energy saved at no slowdown"));
  ExpectComplaint(
      Run("plan --schedule 1f1b --no-frontier --figure memory.svg" + std::string(kSearched)), 2,
      "memory.svg: this figure needs schedules that were searched for");
}

// The finalists are compared by plans within the limit, for each way to set the limit.
TEST_F(ScheduleSearchTest, KeepsALimitOfClockChanges) {
  const std::string search = "schedule search" + std::string(kSearched) + "--more 0,1 --json ";
  const auto limited = RunJson(search + "--max-switches 2");
  for (const auto& row : limited["rows"]) EXPECT_LE(row["changes_per_gpu"], 2);
  Write("limited.toml", "[gpu]\nmax_switches = 2\n");
  EXPECT_EQ(RunJson(search + "--job limited.toml"), limited);
  EXPECT_GT(RunJson(search)["rows"][1]["saving"], limited["rows"][1]["saving"]);
  const auto planned = RunJson("plan --schedule auto --max-in-flight 5,4,3,2 --max-switches 2" +
                               std::string(kSearched) + "--no-frontier --json");
  EXPECT_LE(planned["plans"].front()["time_s"], limited["reference"]["time_s"]);
}

// `perseus report DIR` shows what `perseus plan` found.
TEST_F(ScheduleSearchTest, TheReportOfADirectoryShowsTheSearch) {
  RunWell(
      "plan --schedule auto --max-in-flight 5,4,3,1 --no-frontier --max-switches 4 -o out "
      "--figure memory.svg --figure schedules.svg --figure orders.svg" +
      std::string(kSearched));
  const auto summary = nlohmann::json::parse(Read("out/summary.json"));
  const auto& search = summary["schedule_search"];
  EXPECT_EQ(search["reference"]["schedule"], "1f1b");
  EXPECT_EQ(search["found"]["in_flight"], nlohmann::json({5, 4, 3, 1}));
  EXPECT_GT(search["found"]["saving"], search["reference"]["saving"]);
  EXPECT_EQ(search["max_switches"], 4);
  RunWell(
      "report out -o again.html --figure a/memory.svg --figure a/schedules.svg "
      "--figure a/orders.svg");
  for (const char* figure : {"memory.svg", "schedules.svg", "orders.svg"}) {
    EXPECT_EQ(Read(figure), Read(std::string("a/") + figure)) << figure;
  }
  EXPECT_THAT(Read("again.html"), HasSubstr("schedule_tradeoff"));

  auto edited = summary;
  edited["schedule_search"]["memory"]["of_pp_rank"] = {1};
  Write("out/summary.json", edited.dump());
  ExpectComplaint(Run("report out -o again.html"), 2, "plan again");
  RunWell("plan --schedule 1f1b --no-frontier -o plain" + std::string(kSearched));
  ExpectComplaint(Run("report plain --figure memory.svg"), 2, "schedules that were searched for");
}

TEST_F(ScheduleSearchTest, SearchesStagesInAV) {
  Write("v.csv", RunWell("synth --gpu a100 --stages 3 --chunks 2 --fold"));
  const std::string job = " v.csv --microbatches 6 --blocking-power 84 ";
  const auto search = RunJson("schedule search" + job + "--fold --more 0,1 --json -o schedules");
  EXPECT_EQ(search["reference"]["schedule"], "zb-v");
  EXPECT_GT(search["rows"][0]["saving"], search["fixed"]["saving"]);
  RunWell("plan v.csv --schedule-file schedules/more-0.csv --blocking-power 84 --no-frontier");
  RunWell("plan --schedule auto --fold --no-frontier -o out" + job);
  RunWell("report out -o report.html");
  Write("v.toml", "[pipeline]\nfold = true\n");
  EXPECT_EQ(RunJson("schedule search --job v.toml --more 0,1 --json" + job), search);
  ExpectComplaint(Run("plan --schedule zb-v --fold" + job), 2, "--fold is for a schedule");
  ExpectComplaint(Run("schedule search --fold" + std::string(kSearched)), 2,
                  "need two chunks on each pp_rank");
}

TEST_F(ScheduleSearchTest, ChoosesWhatIsRecomputed) {
  Write("recompute.csv",
        RunWell("synth --gpu a100 --stages 4 --instructions forward,backward,recompute"));
  const std::string search =
      "schedule search recompute.csv --microbatches 8 --blocking-power 84 --more 0 "
      "--activation-memory 1024 ";
  // 1F1B holds 4 GiB on pp_rank 0. With recomputes on this rank, the schedule fits into less
  // memory.
  const auto fitting =
      RunJson(search + "--kept-memory 100 --memory 3.5 -o schedules --json")["fitting"];
  // In bytes, the schedule has the same memory as the reference. In microbatches, it does not.
  EXPECT_THAT(RunWell(search + "--kept-memory 100 --memory 3.5"),
              AllOf(ContainsRegex("early-recompute-1f1b\n +4 3 2 1 +1[.]29 GiB "),
                    ContainsRegex("[+]0 +4 3 2 1 +1[.]29 GiB ")));
  // Early recomputation on all pp_ranks saves less.
  EXPECT_GT(fitting["saving"], 0.1);
  EXPECT_THAT(Read("schedules/fits.csv"), HasSubstr("0R"));
  ExpectComplaint(Run(search + "--memory 3.5"), 3, "1f1b needs 4.000 3.000 2.000 1.000 GiB");
  ExpectComplaint(Run(search + "--memory 3.5 --kept-memory 2000"), 2,
                  "above the memory of its activations");
  ExpectComplaint(
      Run("schedule search --activation-memory 9 --kept-memory 1" + std::string(kSearched)), 2,
      "has no recompute instructions");
}

TEST_F(ScheduleSearchTest, SaysWhichInstructionsAreOfNoUse) {
  constexpr const char* kInstructions = "forward,backward,backward_input,backward_weight";
  RunWell(std::string("synth --gpu a100 --stages 3 -o split.csv --instructions ") + kInstructions);
  RunWell("--version; grep -v '^2,backward_weight' split.csv >gap.csv");
  const std::string job = " --microbatches 4 --blocking-power 84 ";
  constexpr const char* kGap =
      "No schedule has backward_weight instructions, because gap.csv lacks those of stage 2 "
      "(profile all stages). ";
  EXPECT_THAT(OneLine(RunWell("schedule search gap.csv --more 0" + job)), HasSubstr(kGap));
  EXPECT_THAT(OneLine(RunWell("plan gap.csv --schedule auto --no-frontier" + job)),
              HasSubstr(kGap));
  EXPECT_THAT(RunWell("schedule search split.csv --more 0" + job), Not(HasSubstr("lacks")));
}

// The last rank of two receives within its forwards, so the forwards begin with the step.
TEST_F(ScheduleSearchTest, TheScheduleThatRanNamesInstructionsThatWait) {
  const auto log = [](int rank, const char* instructions) {
    std::string text = fmt::format(
        "{{\"perseus_rank_log\":1,\"dp_rank\":0,\"pp_rank\":{},\"tp_rank\":0,\"gpu\":\"\","
        "\"gpu_name\":\"\",\"host\":\"h\",\"pid\":1,\"sm_clocks_mhz\":[],"
        "\"may_set_clocks\":false,\"epoch_ns\":0,\"stages\":[{}],\"pp_ranks\":2}}\n",
        rank, rank);
    for (int step = 0; step < 3; ++step) {
      text += fmt::format(
          "{{\"step\":{},\"assignment_version\":0,\"has_plan\":false,\"on_plan\":true,"
          "\"begin_ns\":{}000000000,\"end_ns\":{}100000000,\"instructions\":{},\"energy\":[],"
          "\"clocks\":[],\"temperature_c\":0,\"power_w\":0,\"limited\":false}}\n",
          step, step + 1, step + 1, instructions);
    }
    return text;
  };
  std::filesystem::create_directories(Directory() / "run/ranks");
  Write("run/ranks/dp0-pp0-tp0.jsonl",
        log(0, "[[0,0,0,0,10000000,0],[1,0,0,50000000,20000000,0]]"));
  Write("run/ranks/dp0-pp1-tp0.jsonl", log(1, "[[0,0,0,2000000,20000000,0],[1,0,0,22000000,9,0]]"));
  const auto done = Run("schedule run");
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.err, HasSubstr("perseus: warning: instructions begin before their input is"));
  EXPECT_THAT(done.err, HasSubstr("forward of pp_rank 1 (3 of 3, 8 ms) (begin"));
}

TEST_F(ScheduleSearchTest, SaysWhatIsWrong) {
  const std::string job = kSearched;
  ExpectComplaint(Run("schedule"), 2, "JOBDIR is missing");
  ExpectComplaint(Run("schedule search profile.csv --blocking-power 84"), 2,
                  "the number of microbatches is missing");
  ExpectComplaint(Run("plan --schedule 1f1b --max-in-flight 4" + job), 2,
                  "--max-in-flight is for a schedule that is searched for");
  ExpectComplaint(Run("plan --schedule auto --max-in-flight 4,3" + job), 2,
                  "--max-in-flight has 2 numbers for 4 pp_ranks");
  ExpectComplaint(Run("plan --schedule auto --max-in-flight 1" + job), 3,
                  "1f1b needs 4 3 2 1 microbatches on pp_ranks 0 to 3");
  ExpectComplaint(Run("tune --schedule auto ."), 2, "auto");
  // A plan would refuse this value, because its savings would be too good.
  ExpectComplaint(Run("schedule search profile.csv --microbatches 8 --blocking-power 5000"), 2,
                  "the blocking power of 5000 W is not below");
  ExpectComplaint(Run("plan --schedule 1f1b --memory 40" + job), 2,
                  "the memory of GPUs is for a schedule that is searched for");
  ExpectComplaint(
      Run("plan --schedule auto --memory 40 --activation-memory 1 --max-in-flight 5" + job), 2,
      "the memory is given in microbatches and in bytes");
  ExpectComplaint(Run("plan --schedule auto --memory 4 --activation-memory 4000" + job), 3,
                  "the memory of the GPUs: no known schedule");
}

}  // namespace
}  // namespace perseus
