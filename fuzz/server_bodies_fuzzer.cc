// Checks that no body crashes a reader of the control plane. The reader must be able to read each
// accepted value again. Each refusal must have a place and a remedy. The first byte chooses the
// reader.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "fuzz/require.h"
#include "perseus/cluster/job_planning/job_spec.h"
#include "perseus/cluster/node_messages/node_messages.h"
#include "perseus/cluster/server/identity/answer.h"
#include "perseus/cluster/store/planned_assignment.h"
#include "perseus/cluster/telemetry/node_ranks.h"
#include "perseus/planning/plan_file/plan_file.h"

namespace {

namespace job_planning = perseus::job_planning;
using perseus::fuzz::Require;
using perseus::json_file::Node;
using perseus::server::ReadBody;

constexpr perseus::Milliseconds kNow = 1'000'000;
constexpr int kGpus = 8;

bool IsOneLine(std::string_view text) {
  return !text.empty() && text.find_first_of("\r\n") == std::string_view::npos;
}

void RequireProblem(const perseus::http::Problem& problem) {
  Require(problem.status == 400 && !problem.title.empty());
  Require(IsOneLine(problem.detail) && IsOneLine(problem.remedy));
  Require(problem.pointer.empty() || problem.pointer.front() == '/');
}

void RequireError(const perseus::Error& error) { Require(IsOneLine(error.Message())); }

void ReadTargetAgain(const job_planning::JobTarget& target) {
  const std::string body = job_planning::JobTargetJson(target).dump();
  const auto again = job_planning::ParseJobTarget(body, target.target.gpus);
  Require(again.has_value() && job_planning::JobTargetJson(*again).dump() == body);
}

void ReadJob(std::string_view text) {
  const auto spec = ReadBody(text, job_planning::kDeepestJobSpec, job_planning::ReadJobSpec);
  if (!spec) return RequireProblem(spec.error());
  const auto stored = job_planning::StoredJobSpec(nlohmann::json::parse(text).dump());
  Require(stored.has_value() && stored->key == spec->key);
  Require(stored->planned.schedule.pp_ranks.size() == spec->planned.schedule.pp_ranks.size());
  ReadTargetAgain({.target = spec->target});
}

void ReadTarget(std::string_view text) {
  const auto target = ReadBody(text, job_planning::kDeepestJobSpec, [](const Node& node) {
    return job_planning::ReadNewTarget(node, {.target = {.gpus = kGpus}}, kNow);
  });
  if (!target) return RequireProblem(target.error());
  ReadTargetAgain(*target);
}

void ReadReports(std::string_view text) {
  namespace protocol = perseus::protocol;
  const auto reports = ReadBody(text, protocol::kDeepestReports, protocol::ReadReports);
  if (!reports) return RequireProblem(reports.error());
  for (const protocol::JobReport& report : reports->jobs) {
    Require(report.acknowledged >= 0 && report.following >= 0 && report.since_step >= -1);
    for (const protocol::StepReport& step : report.steps) {
      Require(step.step >= 0 && step.dp_rank >= 0 && step.busy_s >= 0 && step.ranks > 0);
    }
  }
}

void ReadNodeRanks(std::string_view text) {
  const auto ranks = perseus::telemetry::ParseNodeRanks(text);
  if (!ranks) return RequireError(ranks.error());
}

// Checks that if the whole plan is valid, the part that a node receives is valid, too.
void CutPlan(std::string_view text) {
  namespace plan_file = perseus::plan_file;
  const auto plan = plan_file::ParsePlan(text, "plan");
  if (!plan) return RequireError(plan.error());
  const std::string line =
      plan_file::FormatPlan(*plan_file::Cut(*plan, {0}), plan_file::PlanText::kOneLine);
  Require(IsOneLine(line));
  const auto cut_plan = plan_file::ParsePlan(line, "cut");
  Require(cut_plan.has_value() && cut_plan->pp_ranks.size() == plan->pp_ranks.size());
  Require(cut_plan->pp_ranks[0].instructions.size() == plan->pp_ranks[0].instructions.size());
}

void ReadAssignment(std::string_view text) {
  const auto assignment = perseus::store::ParsePlannedAssignment(text);
  if (!assignment) return RequireError(assignment.error());
  const std::string written = JsonOf(*assignment).dump();
  const auto again = perseus::store::ParsePlannedAssignment(written);
  Require(again.has_value() && JsonOf(*again).dump() == written);
}

void ReadSlug(std::string_view text) {
  const auto target = job_planning::TargetOfSlug(text);
  if (!target) return;
  const std::string slug = perseus::plan::Slug(*target);
  const auto again = job_planning::TargetOfSlug(slug);
  Require(again.has_value() && perseus::plan::Slug(*again) == slug);
}

constexpr std::array kReaders{ReadJob, ReadTarget,     ReadReports, ReadNodeRanks,
                              CutPlan, ReadAssignment, ReadSlug};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The choices are '0' to '6', so that seeds are text.
  kReaders[(data[0] + kReaders.size() - '0' % kReaders.size()) % kReaders.size()](text);
  return 0;
}
