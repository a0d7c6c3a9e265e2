// `perseus demo` shows the product in one command: a job on virtual GPUs is profiled, planned and
// verified while it trains. The demo only writes input files and starts the same processes that a
// user would start: an agent, and `perseus run --tune` with a training.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/cli/flags/flag_checks.h"
#include "perseus/cli/verbs/child_process.h"
#include "perseus/cli/verbs/verbs.h"
#include "perseus/planning/profile/profile.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDemoAbout =
    "Show a job that saves energy, on virtual GPUs. Two pipelines of four stages train on eight\n"
    "virtual A100 GPUs. Meanwhile, Perseus measures the stages at several clocks, plans, follows\n"
    "the plan, and measures what it saves. Only the GPUs and the work of the training are\n"
    "simulated. The processes are those of a real job. It takes about 15 s.";
constexpr const char* kDemoExamples =
    "  perseus demo\n"
    "  perseus demo -o results";

constexpr const char* kNode =
    "name = \"demo\"\n"
    "gpus = 8\n"
    "seed = 1\n"
    "clock = \"job.clock\"  # Virtual time. Without this key, time is real.\n"
    "[gpu]\n"
    "profile = \"truth.csv\"\n"
    "blocking_power_w = 84.0\n"
    "time_noise = 0.002\n"
    "power_noise = 0.005\n"
    "[switch_latency]\n"
    "median_ms = 2.0\n"
    "spread = 0.3\n";
constexpr const char* kJob =
    "profile = \"truth.csv\"  # Only the training reads it: its GPUs behave like this.\n"
    "[pipeline]\n"
    "schedule = \"1f1b\"\n"
    "pp_ranks = 4\n"
    "microbatches = 6\n"
    "pipelines = 2\n"
    "[gpu]\n"
    "blocking_power_w = 84.0\n"
    "switch_latency_ms = 2.0\n";

struct DemoFlags {
  std::string directory = "perseus-demo";
  int status = 0;  // The exit status of the training.
};

Result<fs::path> MakeDirectory(const std::string& wanted) {
  std::error_code error;
  const fs::path path = fs::absolute(wanted, error);
  if (!error && fs::create_directory(path, error)) return path;
  if (!error) return Fail("{} exists (remove it, or name another directory with -o)", wanted);
  return Fail("cannot make the directory {}: {} (name another one with -o)", wanted,
              error.message());
}

Result<void> WriteInputs(const fs::path& directory) {
  PERSEUS_ASSIGN_OR_RETURN(const auto truth,
                           synthetic::SynthesizeProfile({.pp_ranks = 4, .work_scale = 0.3}));
  PERSEUS_RETURN_IF_ERROR(
      WriteFileAtomically(directory / "truth.csv", profile::FormatProfile(truth)));
  PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(directory / "node.toml", kNode));
  return WriteFileAtomically(directory / "job.toml", kJob);
}

// Starts the agent of the virtual node, and waits until it listens.
Result<Child> StartAgent(const fs::path& directory, const fs::path& socket) {
  const fs::path log = directory / "agent.log";
  ChildSpec spec;
  spec.command = {
      OwnProgram(), "agent", "--devices", "virtual:" + (directory / "node.toml").string(),
      "--socket",   socket,  "--state",   directory / "agent.json",
      "--metrics",  "off"};
  spec.group = ChildSpec::Group::kOwn;
  PERSEUS_ASSIGN_OR_RETURN(const auto folder, protocol::OwnFolder::Open(directory));
  PERSEUS_ASSIGN_OR_RETURN(spec.output, folder.CreateFile("agent.out"));
  PERSEUS_ASSIGN_OR_RETURN(spec.errors, folder.CreateFile("agent.log"));
  PERSEUS_ASSIGN_OR_RETURN(auto agent, Child::Start(spec));
  for (int tries = 0; tries < 1000 && !agent.Status(); ++tries) {
    if (fs::exists(socket)) return agent;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  agent.End(1);
  return Fail("the agent of the virtual GPUs does not start ({} says why)", log.string());
}

Result<Child> StartTraining(const fs::path& directory, const fs::path& socket) {
  const std::string run = directory / "run";
  ChildSpec spec;
  spec.command = {OwnProgram(),
                  "run",
                  "--tune",
                  "--job-directory",
                  run,
                  "--switch-latency",
                  "2",
                  "--",  // The training:
                  OwnProgram(),
                  "trainer",
                  "--job",
                  directory / "job.toml",
                  "--job-directory",
                  run,
                  "--steps",
                  "400",
                  "--node",
                  directory / "node.toml",
                  "--agent",
                  socket};
  spec.environment = {{"PERSEUS_ATTACH", "off"}};  // The training has no framework.
  return Child::Start(spec);
}

Result<void> RunDemo(const Streams& streams, DemoFlags& flags) {
  PERSEUS_ASSIGN_OR_RETURN(const auto signals, RunSignals::Take());
  PERSEUS_ASSIGN_OR_RETURN(const auto directory, MakeDirectory(flags.directory));
  PERSEUS_RETURN_IF_ERROR(WriteInputs(directory));
  streams.Say(
      "a training of 2 pipelines with 4 stages starts on 8 virtual GPUs; nothing runs on a real "
      "GPU");
  const fs::path socket = directory / "agent.sock";
  PERSEUS_ASSIGN_OR_RETURN(auto agent, StartAgent(directory, socket));
  auto training = StartTraining(directory, socket);
  while (training && !training->Status()) {
    for (const int number : signals.Wait(-1)) training->Signal(number);
  }
  agent.End(5);
  if (!training) return Fail(training);
  flags.status = *training->Status();
  if (flags.status != 0) return {};
  std::error_code error;
  const fs::path verified = directory / "run" / "verify.json";
  if (fs::file_size(verified, error) == 0 || error) {
    return FailAs(ErrorKind::kSystem, "the saving was not measured (the logs in {} say why)",
                  (directory / "run").string());
  }
  streams.Say(
      fmt::format("all files are in {}; look at the plan with: perseus show {}/run/tuned/plan.json",
                  flags.directory, flags.directory));
  streams.Say("with your own training: perseus run --tune -- torchrun ... train.py");
  return {};
}

}  // namespace

Verb AddDemoVerb(CLI::App& program) {
  auto [verb, add, flags] = AddVerb<DemoFlags>(program, "demo", kDemoAbout, kDemoExamples);
  add("-o,--output", flags->directory, "DIR", "New directory for all files")->capture_default_str();
  return {verb,
          [flags = flags](const Streams& streams) { return RunDemo(streams, *flags); },
          {},
          [flags = flags] { return flags->status; }};
}

}  // namespace perseus::cli
