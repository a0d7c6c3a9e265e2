// The verbs (subcommands) of `perseus`, with a file for each verb (help.cc lists the verbs). Each
// function adds a verb and its flags to the program. The verb's action runs after the flags are
// parsed. It prints its result on `streams.out`, and returns any error.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "perseus/base/result.h"
#include "perseus/cli/terminal/standard_output.h"

namespace perseus::cli {

struct Verb {
  const CLI::App* flags = nullptr;  // The program owns this object.
  std::function<Result<void>(const Streams& streams)> run;
  // Only for `perseus run`. Called before `run`, with the words that follow "--" on the command
  // line.
  std::function<void(std::vector<std::string>)> take_command = {};
  // The exit status after `run` succeeded. For `perseus run`, it is the exit status of the
  // training.
  std::function<int()> status = [] { return 0; };
};

Verb AddPlanVerb(CLI::App& program);
Verb AddAgentVerb(CLI::App& program);
Verb AddCompareVerb(CLI::App& program);
Verb AddDemoVerb(CLI::App& program);
Verb AddDoctorVerb(CLI::App& program);
Verb AddEmulateVerb(CLI::App& program);
Verb AddEvaluateVerb(CLI::App& program);
Verb AddGpuVerb(CLI::App& program);
Verb AddJobVerb(CLI::App& program);
Verb AddJobsVerb(CLI::App& program);
Verb AddNodesVerb(CLI::App& program);
Verb AddNodeVerb(CLI::App& program);
Verb AddPartitionVerb(CLI::App& program);
Verb AddQualifyVerb(CLI::App& program);
Verb AddReportVerb(CLI::App& program);
Verb AddRunVerb(CLI::App& program);
Verb AddScheduleVerb(CLI::App& program);
Verb AddServeVerb(CLI::App& program);
Verb AddReplayVerb(CLI::App& program);
Verb AddShowVerb(CLI::App& program);
Verb AddSynthVerb(CLI::App& program);
Verb AddTokenVerb(CLI::App& program);
Verb AddAuditVerb(CLI::App& program);
Verb AddTraceVerb(CLI::App& program);
Verb AddTrainerVerb(CLI::App& program);
Verb AddTuneVerb(CLI::App& program);
Verb AddVerifyVerb(CLI::App& program);
Verb AddVersionVerb(CLI::App& program);
// These functions keep a reference to `program`, because they show its verbs and flags.
Verb AddCompletionVerb(CLI::App& program);
Verb AddHelpVerb(CLI::App& program);

// Returns the version, the commit, and the build: "perseus 0.1.0 (4b097f5f1c2d; Release, GNU
// 12.2.0)". If sources were changed after the commit, the commit ends with "-dirty".
const char* VersionText();

}  // namespace perseus::cli
