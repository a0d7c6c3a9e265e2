#include "perseus/runtime/protocol/job_directory/assignment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <utility>

#include "perseus/base/excerpt.h"
#include "perseus/base/json_file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/limits.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"
#include "perseus/runtime/protocol/job_directory/rank_id.h"

namespace perseus::protocol {
namespace {

using json_file::Node;
using json_file::Throw;

// The depth of file -> clocks -> clock -> value. The keys plans and server are less deep.
constexpr int kDeepestAssignment = 4;

KindClock ReadClock(const Node& node) {
  node.RequireObject({"pp_rank", "chunk", "kind", "frequency_mhz"});
  KindClock clock;
  clock.pp_rank = node.Member("pp_rank").Count(0, kHighestRank, "a pp_rank, from 0");
  clock.chunk = node.Member("chunk").Count(0, kHighestRank, "a chunk's number, from 0");
  const Node kind_node = node.Member("kind");
  const std::string name = kind_node.Text();
  const std::optional<InstructionKind> kind = ParseInstructionKind(name);
  if (!kind || !IsComputation(*kind)) {
    Throw(
        "{} {} is not a computation (expected \"forward\", \"backward\", \"backward_input\", "
        "\"backward_weight\", \"recompute\" or \"optimizer_step\")",
        kind_node.path, Excerpt(name));
  }
  clock.kind = *kind;
  clock.frequency_mhz =
      node.Member("frequency_mhz").Count(1, kHighestFrequencyMhz, "MHz, such as 1410");
  return clock;
}

// Refuses a path that leads out of the directory.
std::string ReadPlanPath(const Node& node) {
  std::string text = node.Text();
  const std::filesystem::path path(text);
  bool leads_out = text.empty() || path.is_absolute();
  for (const auto& part : path) leads_out = leads_out || part == "..";
  if (leads_out) {
    Throw("{} {} is not a path within the job directory (expected a path such as plans/7.json)",
          node.path, Excerpt(text));
  }
  return text;
}

std::map<int, std::string> ReadPlans(const Node& node) {
  if (!node.value.is_object()) {
    Throw("{} is not an object (expected {{\"0\": \"plans/7.json\"}})", node.path);
  }
  std::map<int, std::string> plans;
  for (const auto& item : node.value.items()) {
    plans.emplace(ReadDpRankKey(node, item.key()), ReadPlanPath(node.Member(item.key())));
  }
  return plans;
}

ServerOrigin ReadOrigin(const Node& node) {
  node.RequireObject({"job", "version"});
  const Node id = node.Member("job");
  std::string job = id.Text();
  // A node daemon sends the id in a header to the server, and writes the id into its log.
  constexpr std::size_t kMostIdBytes = 200;
  if (job.empty() || job.size() > kMostIdBytes ||
      job.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789._-") != std::string::npos) {
    Throw("{} {} is not the id of a job (expected an id such as \"j-0123456789abcdef\")", id.path,
          Excerpt(job));
  }
  return {std::move(job),
          node.Member("version").Whole(1, json_file::kLargestWhole, "a number that grows")};
}

// Reads plans, clocks or own. At most one of these three may be present.
void ReadWhatToDo(const Node& file, Assignment& assignment) {
  const bool has_plans = file.Has("plan") || file.Has("plans");
  if (has_plans && file.Has("clocks")) {
    Throw("there are both plan and clocks (remove one of them)");
  }
  if (file.Has("own")) assignment.own = file.Member("own").Flag();
  if (assignment.own && (has_plans || file.Has("clocks"))) {
    Throw("there is a plan or clocks although own is true (remove one of them)");
  }
  if (file.Has("plan")) assignment.plan = ReadPlanPath(file.Member("plan"));
  if (file.Has("plans")) assignment.plans = ReadPlans(file.Member("plans"));
  if (!file.Has("clocks")) return;
  const Node clocks = file.Member("clocks");
  const std::size_t count = clocks.ListSize();
  assignment.clocks.reserve(count);
  for (std::size_t i = 0; i < count; ++i) assignment.clocks.push_back(ReadClock(clocks[i]));
}

Assignment ReadAssignmentFrom(const Node& file) {
  file.RequireObject({"perseus_assignment", "version", "from_step", "until_step", "record", "plan",
                      "plans", "clocks", "own", "server"});
  if (file.Member("perseus_assignment").value != 1) {
    Throw(
        "perseus_assignment is not 1, which is what this perseus reads (install the same version "
        "everywhere)");
  }
  Assignment assignment;
  assignment.version =
      file.Member("version").Whole(1, json_file::kLargestWhole, "a number that grows");
  assignment.from_step =
      file.Member("from_step").Whole(0, json_file::kLargestWhole, "a step's number");
  assignment.record = file.Member("record").Flag();
  if (file.Has("until_step")) {
    assignment.until_step =
        file.Member("until_step").Whole(1, json_file::kLargestWhole, "a step's number");
    if (*assignment.until_step <= assignment.from_step) {
      Throw("until_step {} is not after from_step {} (remove it for a lasting assignment)",
            *assignment.until_step, assignment.from_step);
    }
  }
  ReadWhatToDo(file, assignment);
  if (file.Has("server")) assignment.server = ReadOrigin(file.Member("server"));
  return assignment;
}

constexpr const char* kAssignment = "assignment.json";
// Enough for the plans of 50,000 pipelines. Any user may write such a file into an own directory,
// and a parsed text takes up to 50 times its size.
constexpr std::uint64_t kMostAssignmentBytes = 4U << 20U;

Result<std::optional<Assignment>> ReadIfThere(const std::filesystem::path& directory,
                                              const std::filesystem::path& name) {
  const std::filesystem::path path = directory / name;
  PERSEUS_ASSIGN_OR_RETURN(const FileDescriptor file, OpenJobFile(directory, name));
  if (!file) return std::optional<Assignment>();
  PERSEUS_ASSIGN_OR_RETURN(const std::string text, ReadToEnd(file, kMostAssignmentBytes, path));
  PERSEUS_ASSIGN_OR_RETURN(Assignment assignment, ParseAssignment(text, path.string()));
  return std::optional<Assignment>(std::move(assignment));
}

}  // namespace

std::filesystem::path AssignmentBeforePath(const std::filesystem::path& job_directory) {
  return job_directory / "assignment-before.json";
}

std::string FormatAssignment(const Assignment& assignment) {
  nlohmann::ordered_json file{{"perseus_assignment", 1},
                              {"version", assignment.version},
                              {"from_step", assignment.from_step},
                              {"record", assignment.record}};
  if (assignment.until_step) file["until_step"] = *assignment.until_step;
  if (assignment.own) file["own"] = true;
  if (!assignment.plan.empty()) file["plan"] = assignment.plan;
  if (!assignment.plans.empty()) {
    auto& plans = file["plans"] = nlohmann::ordered_json::object();
    for (const auto& [pipeline, plan] : assignment.plans) plans[fmt::to_string(pipeline)] = plan;
  }
  if (!assignment.clocks.empty()) {
    auto clocks = nlohmann::ordered_json::array();
    for (const KindClock& clock : assignment.clocks) {
      clocks.push_back({{"pp_rank", clock.pp_rank},
                        {"chunk", clock.chunk},
                        {"kind", Name(clock.kind)},
                        {"frequency_mhz", clock.frequency_mhz}});
    }
    file["clocks"] = std::move(clocks);
  }
  if (assignment.server) {
    file["server"] = {{"job", assignment.server->job}, {"version", assignment.server->version}};
  }
  return JsonText(file) + "\n";
}

Result<Assignment> ParseAssignment(std::string_view text, std::string_view name) {
  return json_file::Read(text, name, kDeepestAssignment, ReadAssignmentFrom);
}

Result<std::optional<Assignment>> ReadAssignment(const AssignmentPlaces& places) {
  PERSEUS_ASSIGN_OR_RETURN(auto own, ReadIfThere(places.job, kAssignment));
  if (places.node.empty()) return own;
  PERSEUS_ASSIGN_OR_RETURN(auto other, ReadIfThere(places.node, kAssignment));
  const bool is_newer = other && (!own || other->version > own->version);
  return is_newer ? std::move(other) : std::move(own);
}

Result<std::optional<Assignment>> ReadAssignment(const std::filesystem::path& job_directory) {
  return ReadAssignment(FindPlaces(job_directory));
}

const std::filesystem::path& PlaceOfPlan(const AssignmentPlaces& places,
                                         const Assignment& assignment, const std::string& plan) {
  std::error_code error;
  const bool is_of_node = assignment.server && !places.node.empty() &&
                          std::filesystem::exists(places.node / plan, error);
  return is_of_node ? places.node : places.job;
}

Result<std::optional<Assignment>> ReadAssignmentBefore(const std::filesystem::path& job_directory) {
  return ReadIfThere(job_directory, AssignmentBeforePath({}));
}

Result<void> WriteAssignment(const std::filesystem::path& job_directory,
                             const Assignment& assignment) {
  return WriteJobFile(job_directory, kAssignment, FormatAssignment(assignment));
}

std::int64_t StepsAhead(double assignment_delay_s, double step_time_s) {
  // The 2 includes the current step, which has not ended.
  return 2 + static_cast<std::int64_t>(std::ceil(assignment_delay_s / step_time_s));
}

namespace {

constexpr const char* kLock = "coordinator.lock";

tl::unexpected<Error> HasAnotherCoordinator(const std::filesystem::path& job_directory) {
  return FailAs(
      ErrorKind::kSystem, InFile((job_directory / kLock).string()),
      "another perseus gives this job its assignment (wait for its tune or verify, or end "
      "it: it restores the previous assignment)");
}

}  // namespace

Result<AssignmentWriter> AssignmentWriter::Open(const AssignmentPlaces& places) {
  AssignmentWriter writer(places, places.job);
  PERSEUS_ASSIGN_OR_RETURN(writer.lock_, OpenJobLock(places.job, kLock));
  if (!writer.lock_) return HasAnotherCoordinator(places.job);
  return Continue(std::move(writer));
}

Result<AssignmentWriter> AssignmentWriter::Open(const std::filesystem::path& job_directory) {
  return Open(FindPlaces(job_directory));
}

Result<AssignmentWriter> AssignmentWriter::OpenForNode(const AssignmentPlaces& places) {
  AssignmentWriter writer(places, places.node);
  PERSEUS_ASSIGN_OR_RETURN(const auto lock, OpenJobFile(places.job, kLock));
  if (lock && IsLockedForWriting(lock.get()).value_or(false)) {
    return HasAnotherCoordinator(places.job);
  }
  return Continue(std::move(writer));
}

Result<AssignmentWriter> AssignmentWriter::Continue(AssignmentWriter writer) {
  PERSEUS_ASSIGN_OR_RETURN(const auto now, ReadAssignment(writer.places_));
  PERSEUS_ASSIGN_OR_RETURN(const auto kept, ReadAssignmentBefore(writer.places_.job));
  writer.before_.own = true;
  // Beside a lasting assignment, the file is old: a node cannot delete it.
  writer.is_kept_ = kept && now && now->until_step;
  if (writer.is_kept_) {
    writer.before_ = *kept;
  } else if (now && !now->until_step) {
    writer.before_ = *now;
  }
  if (now) writer.version_ = now->version;
  writer.first_version_ = writer.version_;
  return writer;
}

void AssignmentWriter::CountFrom(std::int64_t version) {
  if (version > version_) version_ = first_version_ = version;
}

Result<std::int64_t> AssignmentWriter::Write(Assignment assignment, std::int64_t from_step) {
  assignment.version = version_ + 1;
  assignment.from_step = from_step;
  if (assignment.until_step && !is_kept_) {
    PERSEUS_RETURN_IF_ERROR(
        WriteJobFile(place_, AssignmentBeforePath({}), FormatAssignment(before_)));
    is_kept_ = true;
  }
  PERSEUS_RETURN_IF_ERROR(WriteAssignment(place_, assignment));
  ++version_;
  if (!assignment.until_step && is_kept_) {
    std::error_code error;
    std::filesystem::remove(AssignmentBeforePath(place_), error);
    is_kept_ = static_cast<bool>(error);
  }
  return version_;
}

Result<std::int64_t> AssignmentWriter::Restore() { return Write(before_, 0); }

Result<std::string> AssignmentWriter::AddPlan(const std::string& name,
                                              const std::string& plan) const {
  const std::string path = fmt::format("plans/{}.json", name);
  PERSEUS_RETURN_IF_ERROR(WriteJobFile(place_, path, plan));
  return path;
}

void AssignmentWriter::RemovePlan(const std::string& path) const {
  const std::filesystem::path file(path);
  const auto folder = OpenJobFolder(place_, file.parent_path().string());
  if (folder) ::unlinkat(folder->get(), file.filename().c_str(), 0);
}

}  // namespace perseus::protocol
