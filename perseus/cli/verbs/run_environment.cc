#include "perseus/cli/verbs/run_environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

#include "perseus/base/environment.h"
#include "perseus/base/file.h"
#include "perseus/base/process.h"
#include "perseus/base/result.h"
#include "perseus/cli/verbs/child_process.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

fs::path OwnProgram() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

// ---- The job directory ----

Result<fs::path> MakeJobDirectory(const fs::path& wanted) {
  std::error_code error;
  if (!wanted.empty()) {
    const auto ranks = protocol::OwnFolder::Open(wanted, "ranks");
    if (!ranks) return Fail("cannot write to {}: {}", wanted.string(), ranks.error().message);
    const fs::path absolute = fs::absolute(wanted);
    if (::access((absolute / "ranks").c_str(), W_OK | X_OK) == 0) return absolute;
    return Fail("cannot write to {}: permission denied (name another one with --job-directory)",
                wanted.string());
  }
  const fs::path here = fs::current_path(error);
  for (int number = 1; !error; ++number) {
    const fs::path path = here / fmt::format("perseus-run-{}", number);
    // False without an error if it exists.
    if (fs::create_directory(path, error)) {
      fs::create_directory(path / "ranks", error);
      if (!error) return path;
    }
  }
  return Fail("cannot make a directory in {}: {} (name one with --job-directory)", here.string(),
              error.message());
}

// ---- The Python package ----

// The Python that runs the command: the command itself, or the one in the first line of its script
// (torchrun), or else `python3`.
std::string PythonOf(const std::vector<std::string>& command) {
  const auto is_python = [](const fs::path& file) {
    return file.filename().string().starts_with("python");
  };
  const std::string program = FindProgram(command.front());
  if (is_python(program)) return program;
  for (const std::string& word : InterpreterOf(program)) {
    if (is_python(word)) return word;
    if (!word.ends_with("/env")) break;
  }
  return "python3";
}

// Whether this Python does not run the hook: -I and -E ignore PYTHONPATH, and -S ignores
// sitecustomize.
bool IgnoresHook(const std::vector<std::string>& command) {
  if (!fs::path(command.front()).filename().string().starts_with("python")) return false;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const std::string& word = command[i];
    if (!word.starts_with('-') || word.starts_with("--")) return false;
    // The rest of the word, or the next one, belongs to these flags.
    const std::string flags = word.substr(1, word.find_first_of("cmWX") - 1);
    if (flags.find_first_of("IES") != std::string::npos) return true;
    if (flags.size() + 1 < word.size()) return false;
  }
  return false;
}

bool HasHook(const fs::path& package) {
  return ::access((package / "hook" / "sitecustomize.py").c_str(), R_OK) == 0;
}

// The folder of the package that this Python imports.
std::optional<fs::path> ImportedPackage(const std::string& python) {
  auto found = RunProgram({python, "-c",
                           "import importlib.util as u; s = u.find_spec('perseus'); "
                           "print(list(s.submodule_search_locations)[0] if s else '')"},
                          "");
  if (!found) return std::nullopt;
  std::string path = *std::move(found);
  while (path.ends_with('\n')) path.pop_back();
  return HasHook(path) ? std::optional<fs::path>(path) : std::nullopt;
}

// The folder of the package that was built or installed with this program.
std::optional<fs::path> NeighboringPackage() {
  const fs::path prefix = OwnProgram().parent_path().parent_path();
  for (const char* const folder : {"python", "lib/python3/dist-packages"}) {
    const fs::path package = prefix / folder / "perseus";
    if (HasHook(package)) return package;
  }
  return std::nullopt;
}

// PYTHONPATH with the hook first. Empty if the package is not found.
std::string PythonPath(const std::vector<std::string>& command) {
  const std::string before = EnvironmentOr("PYTHONPATH");
  const std::string rest = before.empty() ? "" : ":" + before;
  if (const auto imported = ImportedPackage(PythonOf(command))) {
    return (*imported / "hook").string() + rest;
  }
  const auto package = NeighboringPackage();
  if (!package) return "";
  // Last, so that nothing beside the package hides modules of the training.
  return fmt::format("{}{}:{}", (*package / "hook").string(), rest,
                     package->parent_path().string());
}

// ---- Several nodes ----

// The value of `--nnodes N`, `--nnodes=N` or `--nnodes MIN:MAX` of torchrun: the greatest number of
// nodes. 1 if it is not there, or is no number.
int NodesOf(const std::vector<std::string>& command) {
  constexpr std::string_view kFlag = "--nnodes";
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view value = command[i];
    if (!value.starts_with(kFlag)) continue;
    value.remove_prefix(kFlag.size());
    if (value.empty() && i + 1 < command.size()) value = command[i + 1];
    if (value.starts_with('=')) value.remove_prefix(1);
    value.remove_prefix(value.rfind(':') == std::string_view::npos ? 0 : value.rfind(':') + 1);
    int nodes = 1;
    const auto read = std::from_chars(value.data(), value.data() + value.size(), nodes);
    return read.ec == std::errc() ? nodes : 1;
  }
  return 1;
}

void SetUnlessSet(RunEnvironment& environment, const char* name, const std::string& value) {
  if (EnvironmentOr(name).empty()) environment.variables[name] = value;
}

// A plan that no rank could read is reported before the training begins.
Result<void> CheckPlan(const fs::path& plan) {
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadRegularFile(plan));
  PERSEUS_ASSIGN_OR_RETURN(const auto parsed, plan_file::ParsePlan(text, plan.string()));
  if (!parsed.job.IsGeneralGraph()) return {};
  return Fail(
      "{}: is a plan of a general graph, but a training job needs a plan of a pipeline (make one "
      "with perseus plan --schedule)",
      plan.string());
}

}  // namespace

RunEnvironment PrepareRun(const fs::path& job_directory, const fs::path& plan,
                          const std::vector<std::string>& command) {
  RunEnvironment environment;
  if (auto made = MakeJobDirectory(job_directory)) {
    environment.job_directory = *std::move(made);
    environment.variables["PERSEUS_JOB_DIR"] = environment.job_directory.string();
  } else {
    environment.warnings.push_back(made.error().message + "; nothing is recorded");
  }
  SetUnlessSet(environment, "PERSEUS_ATTACH", "auto");
  if (const int nodes = NodesOf(command); nodes > 1 && job_directory.empty()) {
    environment.warnings.push_back(fmt::format(
        "the training runs on {} nodes, but each node records into a directory of its own, so "
        "ranks are missing in each (start perseus run on each node with the same --job-directory, "
        "on a file system that all nodes share)",
        nodes));
  }
  // The library takes the node's agent if it listens.
  SetUnlessSet(environment, "PERSEUS_AGENT", "own");
  SetUnlessSet(environment, "PERSEUS_PROGRAM", OwnProgram().string());
  if (std::string path = PythonPath(command); !path.empty()) {
    environment.variables["PYTHONPATH"] = std::move(path);
  } else {
    environment.warnings.push_back(
        "the Python package perseus is not installed, so no framework is attached: only a program "
        "that opens a session by itself is recorded (pip install it for the Python of the "
        "training)");
  }
  if (IgnoresHook(command)) {
    environment.warnings.push_back(
        "this Python does not run the hook of Perseus, so no framework is attached (leave out -I, "
        "-E and -S, or call perseus.attach)");
  }
  if (plan.empty()) return environment;
  if (const auto checked = CheckPlan(plan)) {
    std::error_code error;
    environment.variables["PERSEUS_PLAN"] = fs::absolute(plan, error).string();
  } else {
    environment.plan_problem = checked.error().message + "; no plan is followed";
    environment.warnings.push_back(environment.plan_problem);
  }
  return environment;
}

}  // namespace perseus::cli
