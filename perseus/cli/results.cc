#include "perseus/cli/results.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRunName = ".perseus-run";

// Not in every run: plans, and a schedule that was searched for.
bool IsOfSomePlanRuns(std::string_view name) {
  if (name == "schedule.csv" || name == "schedule.txt") return true;
  return name.starts_with("plans/") && name.ends_with(".json") &&
         std::ranges::count(name, '/') == 1;
}

// The schedules of the rows "more-N" and "fits", each as CSV and in words.
bool IsOfSomeSearches(std::string_view name) {
  if (name == "report.html") return true;
  if (!name.ends_with(".csv") && !name.ends_with(".txt")) return false;
  name.remove_suffix(4);
  if (name == "fits") return true;
  if (!name.starts_with("more-")) return false;
  name.remove_prefix(5);
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

bool IsNone(std::string_view /*name*/) { return false; }

// Whether a run writes files with that name. A user may have edited the list in a summary, and a
// run must not move other files because of it.
bool IsResultName(const ResultKind& kind, std::string_view name) {
  if (name.empty() || name == kind.summary) return false;
  return std::ranges::find(kind.always, name) != std::end(kind.always) || kind.is_other(name);
}

tl::unexpected<Error> SystemFailure(const fs::path& path, std::string_view what,
                                    const std::error_code& error) {
  return FailAs(ErrorKind::kSystem, "{}: cannot {}: {}", path.string(), what,
                CauseAndRemedy(error));
}

// A file or a link, even one that points nowhere.
bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// Whether `path` is a directory itself and not a link to one.
bool IsRealDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// The same, and whether it belongs to the user of this process.
bool IsOwnDirectory(const fs::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == ::geteuid();
}

// The names of results in a directory.
std::vector<std::string> NamesIn(const fs::path& directory, const ResultKind& kind) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(directory, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (IsResultName(kind, name)) names.push_back(std::move(name));
  }
  return names;
}

// The files that a summary lists: those of every run if it has no list. Nothing without a summary.
Result<std::optional<std::vector<std::string>>> ListedFiles(const fs::path& directory,
                                                            const ResultKind& kind) {
  const fs::path summary_path = directory / kind.summary;
  if (!Exists(summary_path)) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(summary_path));
  const auto summary = nlohmann::json::parse(text, nullptr, false);
  if (!summary.is_object() || summary.value("format", nlohmann::json()) != kind.format) {
    return Fail("{}: was not written by {} (use another directory with -o)", summary_path.string(),
                kind.verb);
  }
  std::vector<std::string> names;
  if (!summary.contains("files")) {
    for (const std::string_view name : kind.always) {
      if (!name.empty()) names.emplace_back(name);
    }
    // Searches of version 0.1 wrote no list.
    if (&kind == &kSearchResults)
      std::ranges::copy(NamesIn(directory, kind), std::back_inserter(names));
  } else {
    for (const auto& file : summary["files"]) {
      if (!file.is_string() || !IsResultName(kind, file.get_ref<const std::string&>())) continue;
      names.push_back(file.get<std::string>());
    }
  }
  return names;
}

// A name is on disk only once its directory is. Some file systems cannot flush a directory.
Result<void> FlushDirectory(const fs::path& directory) {
  const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened && (errno == ENOENT || errno == EACCES)) return {};
  if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL)) {
    return FailAs(ErrorKind::kSystem, "{}: cannot flush: {}", directory.string(),
                  CauseAndRemedy(errno));
  }
  return {};
}

Result<void> FlushFile(const fs::path& path) {
  const FileDescriptor opened(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL)) {
    return SystemFailure(path, "flush", {errno, std::generic_category()});
  }
  return {};
}

Result<void> WriteNewFile(const fs::path& path, std::string_view contents) {
  const auto failure = [&] {
    return SystemFailure(path, "write", {errno, std::generic_category()});
  };
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  // Everybody may read results, whatever the umask is, as those of WriteFileAtomically.
  if (!file || ::fchmod(file.get(), 0644) != 0) return failure();
  while (!contents.empty()) {
    const ssize_t written = ::write(file.get(), contents.data(), contents.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure();
    contents.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Writes files of a directory that only this run uses, so they replace nothing. They are flushed
// together, after the last one is written: one by one takes three times as long, because each flush
// writes the journal of the file system.
Result<void> WriteNewFiles(const fs::path& directory, const std::vector<ResultFile>& files) {
  std::set<fs::path> directories{directory.parent_path(), directory};
  for (const ResultFile& file : files) {
    const fs::path path = directory / file.name;
    std::error_code error;
    fs::create_directories(path.parent_path(), error);
    if (error) return SystemFailure(path, "write", error);
    PERSEUS_RETURN_IF_ERROR(WriteNewFile(path, file.contents));
    directories.insert(path.parent_path());
  }
  for (const ResultFile& file : files) PERSEUS_RETURN_IF_ERROR(FlushFile(directory / file.name));
  for (const fs::path& one : directories) PERSEUS_RETURN_IF_ERROR(FlushDirectory(one));
  return {};
}

// Moves the files with these names, as far as they exist, and flushes both directories. Replaces
// nothing.
Result<void> MoveFiles(const fs::path& from, const fs::path& to,
                       const std::vector<std::string>& names) {
  std::set<fs::path> changed;
  for (const std::string& name : names) {
    if (!Exists(from / name)) continue;
    const fs::path place = to / name;
    if (Exists(place)) {
      return Fail("{}: appeared while no run was writing (move it, or use another directory)",
                  place.string());
    }
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    if (!error) fs::rename(from / name, place, error);
    if (error) return SystemFailure(place, "write", error);
    changed.insert({(from / name).parent_path(), place.parent_path(), from, to});
  }
  for (const fs::path& directory : changed) PERSEUS_RETURN_IF_ERROR(FlushDirectory(directory));
  return {};
}

std::vector<std::string> FilesBelow(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(directory, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    if (!IsRealDirectory(entry->path())) {
      names.push_back(entry->path().lexically_relative(directory).string());
    }
  }
  return names;
}

// Moves the names of `last` to the end.
void PutLast(std::vector<std::string>& names, std::string_view last) {
  std::stable_partition(names.begin(), names.end(),
                        [&](const std::string& name) { return name != last; });
}

// Undoes an incomplete replacement: moves the new files back to DIR/.perseus-run/new, and the
// earlier ones to their places. `listed` are the new files without their summary. Every step may be
// repeated, so a run that is killed in here leaves a state that the next one can end.
Result<void> Undo(const fs::path& directory, const ResultKind& kind,
                  const std::vector<std::string>& listed) {
  const fs::path run = directory / kRunName;
  std::vector<std::string> moved;
  for (const std::string& name : listed) {
    if (!Exists(run / "new" / name)) moved.push_back(name);
  }
  PERSEUS_RETURN_IF_ERROR(MoveFiles(directory, run / "new", moved));
  std::vector<std::string> earlier = FilesBelow(run / "old");
  std::erase_if(earlier, [&](const std::string& name) {
    return name != kind.summary && !IsResultName(kind, name);
  });
  PutLast(earlier, kind.summary);
  PERSEUS_RETURN_IF_ERROR(MoveFiles(run / "old", directory, earlier));
  for (const std::string& name : moved) {
    if (name.find('/') == name.npos) continue;
    ::rmdir((directory / name).parent_path().c_str());  // If the new files were its only ones.
  }
  // From here on, nothing is left to undo.
  std::error_code error;
  fs::remove(run / "new" / kind.summary, error);
  if (error) return SystemFailure(run, "remove", error);
  return FlushDirectory(run / "new");
}

constexpr const ResultKind* kAllResults[] = {&kPlanResults, &kEmulationResults, &kTuningResults,
                                             &kSearchResults};

// Ends what a run began in DIR/.perseus-run, whether that run is this one or a killed one, of this
// verb or another. The replacement is incomplete as long as the new summary is there.
Result<void> EndRun(const fs::path& directory) {
  const fs::path run = directory / kRunName;
  if (!Exists(run)) return {};
  // Another user may be able to write into the directory, and files of this one must not be moved
  // or removed through a link.
  for (const fs::path& one : {run, run / "new", run / "old"}) {
    if (!Exists(one) || IsOwnDirectory(one)) continue;
    return Fail(
        "{}: was not written by perseus for this user (remove it, or use another directory with "
        "-o)",
        one.string());
  }
  for (const ResultKind* kind : kAllResults) {
    PERSEUS_ASSIGN_OR_RETURN(const auto listed, ListedFiles(run / "new", *kind));
    if (listed) PERSEUS_RETURN_IF_ERROR(Undo(directory, *kind, *listed));
  }
  std::error_code error;
  fs::remove_all(run, error);
  if (error) return SystemFailure(run, "remove", error);
  return {};
}

Result<void> RefuseToReplace(const fs::path& path, const ResultKind& kind) {
  if (!Exists(path)) return {};
  return Fail(
      "{}: already exists and was not written by an earlier run of {} (move it, or use another "
      "directory with -o)",
      path.string(), kind.verb);
}

// SIGINT, SIGTERM and SIGHUP wait while it lives.
class SignalsWait {
 public:
  SignalsWait() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &ends, &before_);
  }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;
  ~SignalsWait() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace

const ResultKind kPlanResults{"perseus plan",
                              "summary.json",
                              "perseus-summary",
                              {"frontier.csv", "trace.json", "report.html"},
                              IsOfSomePlanRuns};
const ResultKind kEmulationResults{"perseus emulate",
                                   "emulation.json",
                                   "perseus-emulation",
                                   {"iterations.csv", "pp_ranks.csv", "trace.json"},
                                   IsNone};
const ResultKind kTuningResults{"perseus tune",
                                "plan.json",
                                "perseus-plan",
                                {"profile.csv", "planned.csv", "options.csv"},
                                IsNone};
const ResultKind kSearchResults{
    "perseus schedule search", "search.json", "perseus-schedule-search", {}, IsOfSomeSearches};

Result<void> CheckComplete(const fs::path& directory) {
  for (const ResultKind* kind : kAllResults) {
    // A replacement first moves the old summary away, and last moves the new one to its place.
    if (!Exists(directory / kRunName / "new" / kind->summary)) continue;
    if (Exists(directory / kind->summary)) continue;
    return FailAs(
        ErrorKind::kSystem,
        "{}: its results are incomplete, because a run of {} ended while it replaced them, "
        "or replaces them now (wait, or run it again with this -o: it begins with a "
        "repair)",
        directory.string(), kind->verb);
  }
  return {};
}

Result<std::vector<std::string>> FilesOfRun(const fs::path& directory, const ResultKind& kind) {
  PERSEUS_RETURN_IF_ERROR(CheckComplete(directory));
  PERSEUS_ASSIGN_OR_RETURN(auto listed, ListedFiles(directory, kind));
  if (listed) return *std::move(listed);
  if (Exists(directory / kRunName)) {
    return FailAs(
        ErrorKind::kSystem,
        "{}: has no results, because a run ended before it wrote them, or has not written "
        "them yet (wait, or run it again with this -o)",
        directory.string());
  }
  return Fail(
      "{}: has no {}, so it is no directory of {} (give one that it wrote with -o, or files)",
      directory.string(), kind.summary, kind.verb);
}

ResultDirectory::ResultDirectory(fs::path path, const ResultKind& kind)
    : path_(std::move(path)), kind_(kind) {}

ResultDirectory::~ResultDirectory() {
  if (!lock_) return;
  const auto ended = EndRun(path_);  // If this fails, the next run tries again.
  const std::vector<fs::path> created =
      ended && !has_published_ ? lock_->created() : std::vector<fs::path>();
  lock_.reset();
  RemoveIfEmpty(created);
}

Result<void> ResultDirectory::Open() {
  PERSEUS_ASSIGN_OR_RETURN(auto lock, DirectoryLock::Take(path_));
  lock_.emplace(std::move(lock));
  // If nobody reads the output any more, or a file is above the limit of the shell, writing fails,
  // and the directory is as it was before. (Not for all verbs: a training that `perseus run` starts
  // would ignore these signals, too.)
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  PERSEUS_RETURN_IF_ERROR(EndRun(path_));
  PERSEUS_ASSIGN_OR_RETURN(auto listed, ListedFiles(path_, kind_));
  earlier_ = std::move(listed).value_or(std::vector<std::string>());
  for (const std::string& name : earlier_) {
    if (!IsRealDirectory(path_ / name)) continue;
    return Fail(
        "{}: is a directory, where perseus writes a file (move it, or use another directory with "
        "-o)",
        (path_ / name).string());
  }
  for (const std::string_view name : kind_.always) {
    if (name.empty() || std::ranges::count(earlier_, name) > 0) continue;
    PERSEUS_RETURN_IF_ERROR(RefuseToReplace(path_ / name, kind_));
  }
  if (const fs::path plans = path_ / "plans";
      &kind_ == &kPlanResults && Exists(plans) && !IsRealDirectory(plans)) {
    return Fail(
        "{}: is a link or a file, where perseus writes a directory (move it, or use another "
        "directory with -o)",
        plans.string());
  }
  return {};
}

Result<void> ResultDirectory::Stage(const std::vector<ResultFile>& files) {
  // This check comes before the summary is staged, because a staged summary declares all files with
  // these names as ours.
  for (const ResultFile& file : files) {
    if (file.name == kind_.summary || std::ranges::count(earlier_, file.name) > 0) continue;
    PERSEUS_RETURN_IF_ERROR(RefuseToReplace(path_ / file.name, kind_));
  }
  const fs::path staging = path_ / kRunName / "new";
  std::vector<ResultFile> others;
  const ResultFile* summary = nullptr;
  for (const ResultFile& file : files) {
    staged_.push_back(file.name);
    if (file.name == kind_.summary) {
      summary = &file;
    } else {
      others.push_back(file);
    }
  }
  PERSEUS_RETURN_IF_ERROR(WriteNewFiles(staging, others));
  // A staged summary is always whole, because EndRun reads it.
  return summary == nullptr ? Result<void>()
                            : WriteFileAtomically(staging / summary->name, summary->contents);
}

Result<void> ResultDirectory::Publish() {
  if (staged_.empty()) return {};
  const SignalsWait wait;
  const auto replaced = Replace();
  // Removes the earlier results, or restores them if the replacement failed.
  const auto ended = EndRun(path_);
  PERSEUS_RETURN_IF_ERROR(replaced);
  has_published_ = true;
  return ended;
}

// Each call of MoveFiles ends with a flush, so that a power cut does not reorder the steps.
Result<void> ResultDirectory::Replace() {
  const fs::path run = path_ / kRunName;
  const std::vector<std::string> summary{std::string(kind_.summary)};
  std::vector<std::string> others = staged_;
  std::erase(others, kind_.summary);
  PERSEUS_RETURN_IF_ERROR(MoveFiles(path_, run / "old", summary));
  PERSEUS_RETURN_IF_ERROR(MoveFiles(path_, run / "old", earlier_));
  PERSEUS_RETURN_IF_ERROR(MoveFiles(run / "new", path_, others));
  return MoveFiles(run / "new", path_, summary);
}

}  // namespace perseus::cli
