#include "perseus/runtime/client/assignment_watcher.h"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/runtime/protocol/job_directory/assignment_places.h"
#include "perseus/runtime/protocol/job_directory/job_files.h"

namespace perseus::client {
namespace {

constexpr std::string_view kFile = "assignment.json";

Result<ClockTable> TableOf(const protocol::Assignment& assignment,
                           const protocol::AssignmentPlaces& places, const protocol::RankId& name,
                           int pp_ranks) {
  if (!assignment.clocks.empty()) return CompileClocks(assignment.clocks, name.pp_rank);
  if (assignment.own) {
    ClockTable own;
    own.source = ClockTable::Source::kOwn;
    return own;
  }
  const std::string& plan = assignment.PlanOf(name.dp_rank);
  if (plan.empty()) return ClockTable{};
  const std::filesystem::path& place = protocol::PlaceOfPlan(places, assignment, plan);
  PERSEUS_ASSIGN_OR_RETURN(const auto text, protocol::ReadJobFile(place, plan));
  return CompilePlan(text, (place / plan).string(), name.pp_rank, pp_ranks);
}

std::optional<struct stat> StatusOf(const std::filesystem::path& directory) {
  struct stat status {};
  if (directory.empty() || ::stat((directory / kFile).c_str(), &status) != 0) return std::nullopt;
  return status;
}

}  // namespace

// Without inotify, the rank finds the changes of this node like those of other nodes.
void AssignmentWatcher::BeginToWatch(const protocol::AssignmentPlaces& places) {
  if (!inotify_) inotify_ = FileDescriptor(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
  if (!inotify_) return;
  const std::array<const std::filesystem::path*, 2> paths{&places.job, &places.node};
  for (std::size_t i = 0; i < paths.size(); ++i) {
    if (watches_[i] >= 0 || paths[i]->empty()) continue;
    watches_[i] = ::inotify_add_watch(inotify_.get(), paths[i]->c_str(),
                                      IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR);
  }
}

bool AssignmentWatcher::HasChangedHere() {
  if (!inotify_) return false;
  bool has_changed = false;
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t size = ::read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return has_changed;
    for (std::size_t at = 0; at < static_cast<std::size_t>(size);) {
      inotify_event event;
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const char* name = buffer.data() + at + sizeof event;
      if (event.len > 0 && kFile == name) has_changed = true;
      if ((event.mask & IN_Q_OVERFLOW) != 0) has_changed = true;
      // The directory was removed. A new one needs a new watch.
      if ((event.mask & IN_IGNORED) != 0) std::ranges::replace(watches_, event.wd, -1);
      at += sizeof event + event.len;
    }
  }
}

AssignmentWatcher::News AssignmentWatcher::LookForNew(Nanoseconds now) {
  const bool has_changed = HasChangedHere();
  if (next_ && now < *next_ && !has_changed) return {};
  if (!next_) {
    const std::size_t part = std::hash<std::string>()(protocol::Name(name_)) % 1000;
    next_ = now + kAskEvery * static_cast<Nanoseconds>(part + 1) / 1000;
  } else if (!has_changed) {
    next_ = now + kAskEvery;
  }
  return Ask();
}

AssignmentWatcher::News AssignmentWatcher::Ask() {
  ++asked_;
  const protocol::AssignmentPlaces places = protocol::FindPlaces(job_directory_);
  // The watch begins before the files are read, so that no change is missed.
  BeginToWatch(places);
  // A stat is cheap: network file systems answer it from a cache of a few seconds.
  const Files now{StatusOf(places.job), StatusOf(places.node)};
  if (!now[0] && !now[1]) return {};
  if (IsUnchanged(seen_[0], now[0]) && IsUnchanged(seen_[1], now[1])) return {};
  seen_ = now;
  const auto assignment = protocol::ReadAssignment(places);
  // A network file system fails from time to time. The file is not lost, so the rank tries again.
  const auto try_again = [this](const Error& error) {
    seen_ = {};
    return News{nullptr, error.Message()};
  };
  if (!assignment && assignment.error().kind != ErrorKind::kInput)
    return try_again(assignment.error());
  if (!assignment) return {nullptr, assignment.error().Message()};
  if (!assignment->has_value() || (*assignment)->version <= version_) return {};

  News news;
  news.table = std::make_unique<ClockTable>();
  auto table = TableOf(**assignment, places, name_, pp_ranks_);
  if (!table && table.error().kind != ErrorKind::kInput) return try_again(table.error());
  version_ = (*assignment)->version;
  if (table) {
    *news.table = *std::move(table);
    // If the plan is cut down to other ranks, this rank follows nothing until it gets a plan again.
    const bool is_cut =
        news.table->source == ClockTable::Source::kNone && !news.table->name.empty();
    news.table->version = is_cut ? 0 : version_;
  } else {
    news.problem = table.error().Message();
  }
  news.table->from_step = (*assignment)->from_step;
  news.table->until_step = (*assignment)->until_step.value_or(0);
  news.table->is_recorded = (*assignment)->record;
  return news;
}

}  // namespace perseus::client
