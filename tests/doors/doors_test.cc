// Tests that one job has the same plan from every door, which is a way to request a plan. The
// clocks, energies and bounds are the same, bit for bit. To add a door, add a row to kDoors. To add
// a job, add a row to kJobs.
#include <fmt/core.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "perseus/base/file.h"
#include "perseus/cluster/job_planning/planning.h"
#include "perseus/planning/api/plan_iteration.h"
#include "perseus/planning/job/job_setup.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/tuner/tuned_plan.h"
#include "tests/cli/program.h"

namespace perseus {
namespace {

struct Job {
  const char* name;
  const char* profile;   // Flags of `perseus synth`, or the path of a profile (see DoorsTest).
  const char* pipeline;  // Keys of [pipeline].
  const char* gpu = "";  // Further keys of [gpu].
};
constexpr const char* kPlain = "schedule = \"1f1b\"\nmicrobatches = 3";
// The job has two stages: a search for few clock changes is short for at most eight instructions.
constexpr const char* kTiny = "schedule = \"1f1b\"\nmicrobatches = 2";

constexpr Job kJobs[] = {
    {"Measured", "gpt3-175b_a100-sxm_pp8_tp8.csv", kPlain},
    {"MeasuredBloom", "bloom-176b_a40_pp8_tp8.csv", kPlain},
    {"Example", "examples/gpt3-like_a100_pp8.csv", kPlain},
    {"PowerCapped", "capped", kPlain},
    {"Interleaved", "--chunks 2", R"(schedule = "interleaved-1f1b"
chunks = 2
microbatches = 8)"},
    {"ZeroBubble", "--instructions forward,backward_input,backward_weight", R"(schedule = "zb-h1"
microbatches = 8)"},
    {"DualPipeV",
     "--chunks 2 --fold --instructions forward,backward,backward_input,backward_weight",
     R"(schedule = "dualpipe-v"
chunks = 2
microbatches = 8)"},
    {"Csv", "", R"(schedule_file = "schedule.csv")"},
    {"Noise", "noise", kPlain},
    {"Latency", "", kPlain, "switch_latency_ms = 5"},
    {"Facts", "", kPlain, R"(facts = "facts.toml")"},
    {"GivenLimit", "--stages 2", kTiny, "max_switches = 2"},
    {"Searched", "--stages 2", "schedule = \"auto\"\nmicrobatches = 2"},
    {"OneOption", "one", kPlain},
    {"OneRank", "--stages 1", kPlain},
};

// Empty: the target that applies if the user requests none.
using Asked = std::optional<plan::Target>;
constexpr Asked kTargets[] = {{},
                              {{.kind = plan::Target::Kind::kSlowdown, .value = 3}},
                              {{.kind = plan::Target::Kind::kEdp}}};

class DoorsTest : public CommandTest, public testing::WithParamInterface<Job> {
 protected:
  void SetUp() override {
    const std::string of = GetParam().profile;
    const std::string synth = of.starts_with("--")
                                  ? of + (of.find("--stages") == of.npos ? " --stages 4" : "")
                                  : "--stages 4";
    RunWell("synth --gpu a100 " + synth + " -o profile.csv");
    if (of == "capped") Cap();
    if (of == "noise") AddNoise();
    if (of == "one") {
      Write("profile.csv",
            "stage,instruction,frequency,time,energy\n"
            "0,forward,1410,0.01,4\n0,backward,1410,0.02,8\n");
    }
    if (of.ends_with(".csv")) {
      std::filesystem::copy_file(PathOf(of), Directory() / "profile.csv",
                                 std::filesystem::copy_options::overwrite_existing);
    }
    Write("schedule.csv",
          "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n"
          "2F0,2F1,2B0,2F2,2B1,2B2\n3F0,3B0,3F1,3B1,3F2,3B2\n");
    Write("facts.toml", kFactsOfA100);
    Write(
        "job.toml",
        fmt::format("profile = \"profile.csv\"\n[pipeline]\n{}\n[gpu]\nblocking_power_w = 80\n{}\n",
                    GetParam().pipeline, GetParam().gpu));
  }

  // ---- Doors ----
 public:
  Result<std::string> Program(const Asked& target) {
    const std::string flag = !target ? ""
                             : target->kind == plan::Target::Kind::kEdp
                                 ? "--edp"
                                 : fmt::format("--slowdown {}", target->value);
    if (Run("plan --job job.toml --stops 0 -o out " + flag).status != 0) return Fail("refused");
    return Read(PlanOf(target));
  }

  Result<std::string> Api(const Asked& target) {
    const auto plan = PlanIteration({.job_file = JobFile()}, target);
    if (!plan) return Fail(plan);
    return plan_file::FormatPlan(plan->instructions);
  }

  Result<std::string> Server(const Asked& target) {
    auto job = job::LoadJob({.job_file = JobFile()}).value();
    job_planning::JobSpec spec;
    spec.planned = job.planned;
    const few_switches::ChangeLimit limit = job.changes.known_limit();
    spec.most_switches = limit.most_changes;
    spec.most_changes_per_s = limit.changes_per_s;
    PERSEUS_ASSIGN_OR_RETURN(auto planner, plan::Planner::Create(job.graph, job.model));
    const job_planning::PreparedJob prepared{
        .spec = std::move(spec), .planner = std::move(planner), .noise = job.noise};
    PERSEUS_ASSIGN_OR_RETURN(
        auto made, job_planning::MakePlan(prepared, job.wishes(target).targets.front(), {}));
    return made.body;
  }

#ifdef PERSEUS_PYTHON
  Result<std::string> Python(const Asked& target) {
    const std::string argument = !target ? "target=None"
                                 : target->kind == plan::Target::Kind::kEdp
                                     ? "target='least-energy-delay'"
                                     : fmt::format("slowdown_percent={}", target->value);
    const std::string command = fmt::format(
        "cd '{}' && {} -c \"import perseus; perseus.plan(job='job.toml', "
        "{}).save('python.json')\"",
        Directory().string(), PERSEUS_PYTHON, argument);
    if (std::system(command.c_str()) != 0) return Fail("refused");
    return Read("python.json");
  }
#endif

  // Returns the measurements of a sweep of all options of a profile. Sets the clocks of the sweep.
  static std::vector<profiler::MeasuredOption> Measure(const profile::Profile& profile,
                                                       profiler::SweepJob& sweep) {
    std::vector<std::set<int>> clocks(sweep.schedule.pp_ranks.size());
    std::vector<profiler::MeasuredOption> measured;
    for (const profile::ProfileEntry& entry : profile.entries()) {
      for (const profile::Option& option : entry.options) {
        clocks.at(static_cast<std::size_t>(entry.pp_rank)).insert(option.frequency_mhz);
        const double time_s = ToSeconds(option.time);
        measured.push_back({.group = {entry.pp_rank, entry.chunk, entry.kind},
                            .frequency_mhz = option.frequency_mhz,
                            .samples = 100,
                            .time_s = time_s,
                            .time_ci_s = 1e-3 * time_s,
                            .power_w = option.energy_j / time_s,
                            .power_ci_w = 0.1});
      }
    }
    for (const auto& of_rank : clocks)
      sweep.clocks_mhz.emplace_back(of_rank.begin(), of_rank.end());
    return measured;
  }

  static std::vector<std::vector<int>> ClocksOf(const plan_file::PlanFile& plan) {
    std::vector<std::vector<int>> clocks;
    for (const plan_file::PlannedRank& rank : plan.pp_ranks) {
      std::vector<int>& of_rank = clocks.emplace_back();
      for (const plan_file::PlannedInstruction& one : rank.instructions)
        of_rank.push_back(one.frequency_mhz);
    }
    return clocks;
  }

  std::string JobFile() const { return Directory() / "job.toml"; }

  // Returns the plan file of the program.
  std::string PlanOf(const Asked& target) const {
    const auto job = job::LoadJob({.job_file = JobFile()}).value();
    return "out/plans/" + plan::Slug(job.wishes(target).targets.front()) + ".json";
  }

 private:
  static std::filesystem::path PathOf(const std::string& name) {
    const std::filesystem::path source(PERSEUS_SOURCE_DIR);
    if (name.find('/') != name.npos) return source / name;
    return source / "tests/data/published" / name;
  }

  // Rewrites each row of the profile: `row` gets its five columns.
  void Rewrite(const std::string& further_header,
               const std::function<std::string(std::vector<std::string>)>& row) const {
    std::istringstream lines(Read("profile.csv"));
    std::string line;
    std::getline(lines, line);
    std::string text = line + further_header + "\n";
    while (std::getline(lines, line)) {
      std::istringstream cells(line);
      std::vector<std::string> columns;
      for (std::string cell; std::getline(cells, cell, ',');) columns.push_back(cell);
      text += row(std::move(columns)) + "\n";
    }
    Write("profile.csv", text);
  }

  // Above 1,200 MHz, the power cap limits the clock: each clock is as fast as the fastest clock
  // that is reached.
  void Cap() const {
    std::vector<std::string> reached;
    Rewrite("", [&](std::vector<std::string> columns) {
      std::string& time = columns[columns.size() - 2];
      std::string& energy = columns.back();
      if (std::stod(columns[2]) > 1200) {
        const int mhz = static_cast<int>(std::stod(columns[2]));
        // Writes nearly the same values, as in a measurement.
        time = fmt::format("{:.6f}", 0.05 + 1e-5 * (mhz % 7));
        energy = fmt::format("{:.4f}", 15 + 1e-2 * (mhz % 5));
      } else {
        time = fmt::format("{:.6f}", 0.05 * 1200 / std::stod(columns[2]));
        energy = fmt::format("{:.4f}", 6 + 9 * std::pow(std::stod(columns[2]) / 1200, 2));
      }
      return fmt::format("{},{},{},{},{}", columns[0], columns[1], columns[2], time, energy);
    });
  }

  void AddNoise() const {
    Rewrite(",noise,common_noise", [](const std::vector<std::string>& columns) {
      std::string text;
      for (const std::string& column : columns) text += column + ",";
      return text + "0.01,0.005";
    });
  }
};

struct Door {
  const char* name;
  Result<std::string> (DoorsTest::*plan)(const Asked& target);  // Returns the text of a plan file.
};

constexpr Door kDoors[] = {
    {"perseus plan", &DoorsTest::Program},
    {"the C++ API", &DoorsTest::Api},
    {"the server", &DoorsTest::Server},
#ifdef PERSEUS_PYTHON
    {"Python", &DoorsTest::Python},
#endif
};

TEST_P(DoorsTest, GiveTheSamePlan) {
  for (const Asked& target : kTargets) {
    SCOPED_TRACE(target ? plan::Describe(*target) : "no target");
    std::optional<std::string> first;
    for (const Door& door : kDoors) {
      SCOPED_TRACE(door.name);
      const Result<std::string> made = (this->*door.plan)(target);
      // If each instruction has only one option, there is nothing to plan, and no door invents a
      // plan.
      ASSERT_EQ(made.has_value(), std::string_view(GetParam().name) != "OneOption");
      if (!made) continue;
      auto file = plan_file::ParsePlan(*made, door.name);
      ASSERT_TRUE(file) << file.error().Message();
      file->job.profile = "profile.csv";
      file->job.schedule.name = std::filesystem::path(file->job.schedule.name).filename();
      const std::string text = plan_file::FormatPlan(*file);
      if (!first) first = text;
      EXPECT_EQ(text, *first);
    }
  }
}

// The last step of `tune` plans the profile that it makes from its measurements, with margins for
// their errors. With this profile, another door gives the same clocks. `tune` measures noise
// itself, and accepts a profile with one option for each instruction.
TEST_P(DoorsTest, TuneHasThePlanOfItsProfile) {
  const std::string_view name = GetParam().name;
  if (name == "Noise" || name == "OneOption") return;
  const auto job = job::LoadJob({.job_file = JobFile()}).value();
  profiler::SweepJob sweep{.schedule = job.planned.schedule,
                           .model = job.planned.model,
                           .clocks_mhz = {},
                           .switch_latency = job.model.switch_latency,
                           .switch_cost = job.planned.switch_cost,
                           .change_limit = job.changes.known_limit()};
  const auto profile = profile::ParseProfile(Read("profile.csv"), "profile.csv").value();
  const std::vector<profiler::MeasuredOption> measured = Measure(profile, sweep);
  for (const Asked& asked : kTargets) {
    const plan::Target target = job.wishes(asked).targets.front();
    SCOPED_TRACE(plan::Describe(target));
    const double margin = plan::LimitsTime(target.kind) ? 1 : 0;
    Write("profile.csv",
          profile::FormatProfile(profiler::PlanningProfile(sweep, measured, margin).value()));
    const auto tuned = tuner::TunedPlan::Make(sweep, job.planned, target, measured, {});
    ASSERT_TRUE(tuned) << tuned.error().Message();
    const auto file = plan_file::ParsePlan(Api(asked).value(), "the C++ API").value();
    EXPECT_EQ(ClocksOf(tuned->file()), ClocksOf(file));
    if (margin == 0) {
      EXPECT_EQ(tuned->file().energy_j, file.energy_j);
      EXPECT_EQ(tuned->file().lower_bound_j, file.lower_bound_j);
    }
  }
}

// `compare` and `emulate` print no clocks. They print the time and energy of the job's plan.
TEST_P(DoorsTest, CompareAndEmulateHaveThePlanOfTheJob) {
  const std::string emulate = "emulate --job job.toml --iterations 3 ";
  if (std::string_view(GetParam().name) == "OneOption") {
    EXPECT_EQ(Run("compare --job job.toml").status, 2);
    EXPECT_EQ(Run(emulate).status, 2);
    return;
  }
  const auto file = plan_file::ParsePlan(Program({}).value(), "plan").value();
  const auto compared = RunJson("compare --job job.toml");
  const auto& points = compared["policies"].back()["points"];
  EXPECT_EQ(points[0]["time_s"], ToSeconds(file.time));
  EXPECT_EQ(points[0]["energy_j"], file.energy_j);
  auto emulated = RunJson(emulate);
  auto followed = RunJson(emulate + "--plan " + PlanOf({}));
  for (auto* json : {&emulated, &followed}) json->erase("policy");
  EXPECT_EQ(emulated, followed);
}

INSTANTIATE_TEST_SUITE_P(Jobs, DoorsTest, testing::ValuesIn(kJobs),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace perseus
