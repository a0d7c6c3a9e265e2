#include "perseus/cluster/node/assignment_sync.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/system_cause.h"
#include "perseus/planning/plan_file/plan_file.h"
#include "perseus/runtime/protocol/job_directory/assignment.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::node {
namespace {

// The time until all ranks have read an assignment: twice the interval at which ranks read.
constexpr double kReadDelaySeconds = 0.1;
// If a rank follows a higher version, its log is damaged. Such a version is ignored, so that later
// versions stay below 2^53.
constexpr std::int64_t kMostVersionOfRank = std::int64_t{1} << 52;
// The number of versions whose origins are kept. Ranks never follow this many versions at a time.
constexpr std::size_t kMostVersions = 64;

// Returns what stat(2) shows of the assignment file in a place. Returns an empty status if the file
// does not exist. Fails (kSystem) if this is unknown.
Result<std::optional<struct stat>> StatusIn(const std::filesystem::path& place) {
  struct stat status {};
  if (place.empty()) return std::nullopt;
  const std::filesystem::path path = place / "assignment.json";
  if (::stat(path.c_str(), &status) == 0) return status;
  if (errno == ENOENT) return std::nullopt;
  return SystemFail(errno, "cannot read", InFile(path.string()));
}

std::string IdOf(const std::string& plan_path) {
  return std::filesystem::path(plan_path).stem().string();
}

void AddPlans(const std::optional<protocol::Assignment>& assignment, std::set<std::string>& ids) {
  if (!assignment) return;
  ids.insert(IdOf(assignment->plan));
  for (const auto& [pipeline, path] : assignment->plans) ids.insert(IdOf(path));
}

// Returns the ranks whose instructions the file contains, or nullopt if it contains all ranks.
std::optional<std::set<int>> RanksOfCut(const plan_file::PlanFile& plan) {
  std::set<int> whole;
  for (std::size_t rank = 0; rank < plan.pp_ranks.size(); ++rank) {
    if (!plan.pp_ranks[rank].is_cut) whole.insert(static_cast<int>(rank));
  }
  if (whole.size() == plan.pp_ranks.size()) return std::nullopt;
  return whole;
}

}  // namespace

std::string PlanPath(std::string_view id) { return fmt::format("plans/{}.json", id); }

protocol::Assignment AssignmentOf(const protocol::AssignmentEvent& assignment) {
  protocol::Assignment read;
  read.from_step = assignment.from_step;
  for (const auto& [pipeline, plan] : assignment.plans)
    read.plans.emplace(pipeline, PlanPath(plan));
  read.server = protocol::ServerOrigin{assignment.job, assignment.version};
  return read;
}

std::int64_t FromStep(std::int64_t wanted, const JobProgress& progress) {
  // Ranks on other nodes change plans at the server's step. So this node keeps the server's step,
  // unless that step has already begun.
  if (progress.last_step < 0 || wanted > progress.last_step + 1) return wanted;
  const double step_time_s =
      progress.step_time ? std::max(ToSeconds(*progress.step_time), 1e-3) : kReadDelaySeconds;
  return progress.last_step + protocol::StepsAhead(kReadDelaySeconds, step_time_s);
}

AssignmentSync::AssignmentSync(protocol::AssignmentPlaces places) : places_(std::move(places)) {}

void AssignmentSync::Remember(const std::optional<protocol::Assignment>& assignment) {
  if (!assignment) return;
  if (!assignment->server) {
    origins_.erase(assignment->version);
    return;
  }
  origins_[assignment->version] = *assignment->server;
  while (origins_.size() > kMostVersions) origins_.erase(origins_.begin());
}

Result<void> AssignmentSync::Look() {
  PERSEUS_ASSIGN_OR_RETURN(const auto in_job, StatusIn(places_.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto in_node, StatusIn(places_.node));
  if (!in_job && !in_node) {
    std::error_code error;
    // If the whole directory is deleted, the node does not create it again.
    if (!std::filesystem::is_directory(places_.job, error)) return {};
    seen_ = {};
    lasting_.reset();
    version_ = 0;
    return {};
  }
  if (IsUnchanged(seen_[0], in_job) && IsUnchanged(seen_[1], in_node)) return {};
  seen_ = {in_job, in_node};
  PERSEUS_ASSIGN_OR_RETURN(const auto before, protocol::ReadAssignmentBefore(places_.job));
  PERSEUS_ASSIGN_OR_RETURN(const auto assignment, protocol::ReadAssignment(places_));
  Remember(before);
  Remember(assignment);
  version_ = assignment ? assignment->version : 0;
  highest_version_ = std::max(highest_version_, version_);
  const bool is_temporary = assignment && assignment->until_step;
  lasting_ = is_temporary ? before : assignment;
  // After a restart of this process, the server does not send the assignment again.
  if (!wanted_ && !is_nothing_wanted_ && lasting_ && lasting_->server) wanted_ = lasting_;
  return {};
}

void AssignmentSync::Want(const protocol::AssignmentEvent& assignment) {
  protocol::Assignment read = AssignmentOf(assignment);
  const bool is_of_same = wanted_ && wanted_->server->job == assignment.job;
  if (is_of_same && wanted_->server->version > assignment.version) return;
  if (wanted_ && wanted_->server == read.server) {
    wanted_->plans.merge(read.plans);
  } else {
    wanted_ = std::move(read);
  }
  is_nothing_wanted_ = false;
  upcoming_ = assignment.upcoming;
  DeleteOldPlans();
}

void AssignmentSync::WantNothing() {
  is_nothing_wanted_ = true;
  wanted_.reset();
  upcoming_.clear();
}

void AssignmentSync::SawVersion(std::int64_t version) {
  if (version <= kMostVersionOfRank) highest_version_ = std::max(highest_version_, version);
}

void AssignmentSync::SetRanks(std::map<int, std::set<int>> ranks) {
  ranks_ = std::move(ranks);
  if (wanted_ && IsWantedInForce() && !HasPlansWanted()) were_plans_short_ = true;
}

std::set<int> AssignmentSync::RanksThatFollow(const std::string& id) const {
  std::set<int> followers;
  if (!wanted_) return followers;
  for (const auto& [pipeline, path] : wanted_->plans) {
    const auto ranks = ranks_.find(pipeline);
    if (path == PlanPath(id) && ranks != ranks_.end()) {
      followers.insert(ranks->second.begin(), ranks->second.end());
    }
  }
  return followers;
}

bool AssignmentSync::HasPlansWanted() const {
  return std::ranges::all_of(wanted_->plans,
                             [this](const auto& entry) { return HasPlan(IdOf(entry.second)); });
}

bool AssignmentSync::HasPlan(const std::string& id) const {
  // A link does not count, so that the plan file replaces it.
  const auto file = protocol::OpenJobFile(place(), PlanPath(id));
  if (!file || !*file) return false;
  auto found = cut_for_.find(id);
  if (found == cut_for_.end()) {
    const auto text = protocol::ReadJobFile(place(), PlanPath(id));
    if (!text) return false;
    const auto plan = plan_file::ParsePlan(*text, id);
    if (!plan) return false;
    found = cut_for_.emplace(id, RanksOfCut(*plan)).first;
  }
  return !found->second || std::ranges::includes(*found->second, RanksThatFollow(id));
}

std::set<std::string> AssignmentSync::MissingPlans() const {
  std::set<std::string> missing;
  if (!wanted_ || !HasToWrite()) return missing;
  for (const auto& [pipeline, path] : wanted_->plans) {
    std::string id = IdOf(path);
    if (!HasPlan(id)) missing.insert(std::move(id));
  }
  return missing;
}

bool AssignmentSync::Names(const std::string& id) const {
  std::set<std::string> named(upcoming_.begin(), upcoming_.end());
  AddPlans(wanted_, named);
  return named.contains(id);
}

std::set<std::string> AssignmentSync::MissingUpcoming() const {
  std::set<std::string> missing;
  for (const std::string& id : upcoming_) {
    if (!HasPlan(id)) missing.insert(id);
  }
  return missing;
}

Result<void> AssignmentSync::StorePlan(const std::string& id, const std::string& text) {
  PERSEUS_ASSIGN_OR_RETURN(const auto plan, plan_file::ParsePlan(text, id));
  std::uint64_t bytes = text.size();
  for (const auto& [other, size] : ServerPlans()) bytes += other == id ? 0 : size;
  if (bytes > kMostBytesOfPlans) {
    return FailAs(ErrorKind::kSystem, InFile((place() / "plans").string()),
                  "the plans that the server wants would take more than {} MiB (plan the job with "
                  "fewer instructions, or end it)",
                  kMostBytesOfPlans >> 20U);
  }
  PERSEUS_RETURN_IF_ERROR(protocol::WriteJobFile(place(), PlanPath(id), text));
  cut_for_[id] = RanksOfCut(plan);
  return {};
}

bool AssignmentSync::NamesPlansOfAll() const {
  return !wanted_ || std::ranges::all_of(ranks_, [this](const auto& ranks) {
    return wanted_->plans.contains(ranks.first);
  });
}

bool AssignmentSync::IsWantedInForce() const {
  return lasting_ && lasting_->server == wanted_->server &&
         std::ranges::includes(lasting_->plans, wanted_->plans);
}

bool AssignmentSync::HasToWrite() const {
  if (is_nothing_wanted_) return in_force().has_value();
  if (!wanted_) return false;
  return !IsWantedInForce() || IsBehind() || (has_restarted_ && lasting_->from_step > 0) ||
         were_plans_short_;
}

Result<void> AssignmentSync::Write(const JobProgress& progress) {
  PERSEUS_ASSIGN_OR_RETURN(auto writer, places_.node.empty()
                                            ? protocol::AssignmentWriter::Open(places_)
                                            : protocol::AssignmentWriter::OpenForNode(places_));
  writer.CountFrom(highest_version_);
  previous_plans_.clear();
  AddPlans(protocol::ReadAssignment(places_).value_or(std::nullopt), previous_plans_);
  AddPlans(lasting_, previous_plans_);
  if (is_nothing_wanted_) {
    protocol::Assignment own;
    own.own = true;
    PERSEUS_RETURN_IF_ERROR(writer.Write(own, 0));
  } else {
    // If ranks already follow the assignment, it begins at step 0, so that restarted ranks follow
    // it at once.
    const bool is_followed = IsWantedInForce() && (has_restarted_ || !IsBehind());
    const std::int64_t from_step = is_followed ? 0 : FromStep(wanted_->from_step, progress);
    PERSEUS_RETURN_IF_ERROR(writer.Write(*wanted_, from_step));
  }
  has_restarted_ = were_plans_short_ = false;
  DeleteOldPlans();
  return Look();
}

// Returns the sizes of the server's plan files, in bytes, by plan id.
std::map<std::string, std::uint64_t> AssignmentSync::ServerPlans() const {
  std::map<std::string, std::uint64_t> sizes;
  const auto plans = protocol::OpenJobFolder(place(), "plans");
  const auto names = protocol::ListJobFolder(place(), "plans");
  if (!plans || !names) return sizes;
  for (const std::string& name : *names) {
    struct stat status {};
    const std::string id = IdOf(name);
    const bool is_of_server = protocol::IsPlanId(id) && name == id + ".json";
    if (!is_of_server) continue;
    ::fstatat(plans->get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW);
    sizes.emplace(id, static_cast<std::uint64_t>(status.st_size));
  }
  return sizes;
}

// Deletes the server's plans that no assignment needs. If a file cannot be deleted now, the next
// event or assignment deletes it.
void AssignmentSync::DeleteOldPlans() {
  std::set<std::string> kept = previous_plans_;
  kept.insert(upcoming_.begin(), upcoming_.end());
  AddPlans(wanted_, kept);
  AddPlans(lasting_, kept);
  AddPlans(protocol::ReadAssignment(places_).value_or(std::nullopt), kept);
  const auto plans = protocol::OpenJobFolder(place(), "plans");
  if (!plans) return;
  for (const auto& [id, size] : ServerPlans()) {
    if (kept.contains(id)) continue;
    ::unlinkat(plans->get(), (id + ".json").c_str(), 0);
    cut_for_.erase(id);
  }
}

std::optional<protocol::ServerOrigin> AssignmentSync::in_force() const {
  return lasting_ ? lasting_->server : std::nullopt;
}

std::optional<protocol::ServerOrigin> AssignmentSync::newest() const {
  return wanted_ ? wanted_->server : in_force();
}

std::int64_t AssignmentSync::ServerVersionOf(std::int64_t version) const {
  const auto found = origins_.find(version);
  const auto now = newest();
  // An earlier job in this directory had its own versions.
  const bool is_of_this_job = found != origins_.end() && now && found->second.job == now->job;
  return is_of_this_job ? found->second.version : 0;
}

}  // namespace perseus::node
