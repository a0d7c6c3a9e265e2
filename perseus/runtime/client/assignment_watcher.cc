#include "perseus/runtime/client/assignment_watcher.h"

#include <utility>

#include "perseus/base/file.h"

namespace perseus::client {
namespace {

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_ino == b.st_ino && a.st_dev == b.st_dev && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

Result<ClockTable> TableOf(const protocol::Assignment& assignment,
                           const std::filesystem::path& job_directory,
                           const protocol::RankId& name) {
  if (!assignment.clocks.empty()) return CompileClocks(assignment.clocks, name.pp_rank);
  if (assignment.own) {
    ClockTable own;
    own.source = ClockTable::Source::kOwn;
    return own;
  }
  const std::string& plan = assignment.PlanOf(name.dp_rank);
  if (plan.empty()) return ClockTable{};
  const std::filesystem::path path = job_directory / plan;
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(path));
  return CompilePlan(text, path.string(), name.pp_rank);
}

}  // namespace

AssignmentWatcher::News AssignmentWatcher::LookForNew() {
  struct stat now {};
  // Looking at the name alone is what makes this cheap; network file systems answer it from a cache
  // of a few seconds.
  if (::stat((job_directory_ / "assignment.json").c_str(), &now) != 0) return {};
  if (seen_ && IsSame(*seen_, now)) return {};
  seen_ = now;
  const auto assignment = protocol::ReadAssignment(job_directory_);
  // A network file system fails once in a while; what it holds is not lost for that.
  const auto try_again = [this](const Error& error) {
    seen_.reset();
    return News{nullptr, error.message};
  };
  if (!assignment && assignment.error().kind == ErrorKind::kSystem)
    return try_again(assignment.error());
  if (!assignment) return {nullptr, assignment.error().message};
  if (!assignment->has_value() || (*assignment)->version <= version_) return {};

  News news;
  news.table = std::make_unique<ClockTable>();
  auto table = TableOf(**assignment, job_directory_, name_);
  if (!table && table.error().kind == ErrorKind::kSystem) return try_again(table.error());
  version_ = (*assignment)->version;
  if (table) {
    *news.table = *std::move(table);
    // Of a plan that is cut down to other ranks, nothing is followed before it is given again.
    const bool is_cut =
        news.table->source == ClockTable::Source::kNone && !news.table->name.empty();
    news.table->version = is_cut ? 0 : version_;
  } else {
    news.problem = table.error().message;
  }
  news.table->from_step = (*assignment)->from_step;
  news.table->until_step = (*assignment)->until_step.value_or(0);
  news.table->is_recorded = (*assignment)->record;
  return news;
}

}  // namespace perseus::client
