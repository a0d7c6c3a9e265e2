#include "perseus/cli/verbs/results.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <system_error>
#include <utility>

#include "perseus/base/file.h"
#include "perseus/base/json_text.h"
#include "perseus/base/system_cause.h"

namespace perseus::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockName = ".perseus-lock";
constexpr const char* kNewName = ".perseus-new";
// The name of the earlier summary in DIR/.perseus-new.
constexpr const char* kEarlierSummary = "earlier.json";

// Whether a run writes files with this name. A user may have edited the list in a summary. Because
// of such a list, a run must not move other files.
bool IsResultName(const ResultKind& kind, std::string_view name) {
  if (name.empty() || name == kind.summary) return false;
  return std::ranges::find(kind.always, name) != std::end(kind.always) ||
         std::regex_match(name.begin(), name.end(), std::regex(kind.others));
}

tl::unexpected<Error> SystemFailure(const fs::path& path, std::string_view what,
                                    const std::error_code& error) {
  return SystemFail(error.value(), fmt::format("cannot {}", what), InFile(path.string()));
}

// Whether `path` is a file or a link, even a link that points nowhere.
bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// Whether `path` is a directory itself, and not a link to a directory.
bool IsRealDirectory(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(fs::symlink_status(path, ignored));
}

// Returns the names of the results in a directory.
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

// The files that a summary lists: those of its run, or also the plans that earlier runs left.
enum class Listed { kOfRun, kOwned };

// Returns the files in `directory` that a summary lists. If the summary has no list, returns the
// files that every run writes. Returns nullopt without a summary.
Result<std::optional<std::vector<std::string>>> ListedFiles(const fs::path& summary_path,
                                                            const fs::path& directory,
                                                            const ResultKind& kind,
                                                            Listed which = Listed::kOfRun) {
  if (!Exists(summary_path)) return std::nullopt;
  PERSEUS_ASSIGN_OR_RETURN(const auto text, ReadFile(summary_path));
  const auto summary = ParseJson(text);
  if (!summary.is_object() || summary.value("format", nlohmann::json()) != kind.format) {
    return Fail(InFile(summary_path.string()),
                "was not written by {} (use another directory with -o)", kind.verb);
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
    for (const char* list : {"files", "earlier_plans"}) {
      if (!summary.contains(list)) continue;
      for (const auto& file : summary[list]) {
        if (!file.is_string() || !IsResultName(kind, file.get_ref<const std::string&>())) continue;
        names.push_back(file.get<std::string>());
      }
      if (which == Listed::kOfRun) break;
    }
  }
  return names;
}

// Flushes a directory, because a new name is on disk only after the flush. Some file systems cannot
// flush a directory.
Result<void> FlushDirectory(const fs::path& directory) {
  const FileDescriptor opened(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened && (errno == ENOENT || errno == EACCES)) return {};
  if (!opened || (::fsync(opened.get()) != 0 && errno != EINVAL)) {
    return SystemFailure(directory, "flush", {errno, std::generic_category()});
  }
  return {};
}

bool IsPlan(std::string_view name) { return name.starts_with("plans/"); }

Result<void> RefuseToReplace(const fs::path& path, const ResultKind& kind) {
  if (!Exists(path)) return {};
  return Fail(InFile(path.string()),
              "already exists and was not written by an earlier run of {} (move it, or use another "
              "directory with -o)",
              kind.verb);
}

Result<void> CheckPlansDirectory(const fs::path& directory, const ResultKind& kind) {
  const fs::path plans = directory / "plans";
  if (&kind != &kPlanResults || !Exists(plans) || IsRealDirectory(plans)) return {};
  return Fail(InFile(plans.string()),
              "is a link or a file, where perseus writes a directory (move it, or use another "
              "directory with -o)");
}

// Moves the results of DIR/.perseus-new, which are complete, to the place of the earlier results.
// Every step may be repeated, so the next run can complete the work of a killed run.
Result<void> PutInPlace(const fs::path& directory, const ResultKind& kind) {
  const fs::path from = directory / kNewName;
  const auto move = [](const fs::path& file, const fs::path& place) -> Result<void> {
    std::error_code error;
    fs::create_directories(place.parent_path(), error);
    if (!error) fs::rename(file, place, error);
    return error ? SystemFailure(place, "write", error) : Result<void>();
  };
  PERSEUS_RETURN_IF_ERROR(CheckPlansDirectory(directory, kind));
  const fs::path summary = directory / kind.summary;
  if (Exists(summary)) {
    // The results may belong to another verb.
    PERSEUS_RETURN_IF_ERROR(ListedFiles(summary, directory, kind));
    PERSEUS_RETURN_IF_ERROR(move(summary, from / kEarlierSummary));
  }
  PERSEUS_RETURN_IF_ERROR(FlushDirectory(directory));
  PERSEUS_ASSIGN_OR_RETURN(const auto listed, ListedFiles(from / kind.summary, from, kind));
  PERSEUS_ASSIGN_OR_RETURN(const auto earlier,
                           ListedFiles(from / kEarlierSummary, directory, kind, Listed::kOwned));
  const auto is_earlier = [&](const std::string& name) {
    return earlier && std::ranges::count(*earlier, name) > 0;
  };
  for (const std::string& name : *listed) {
    if (!Exists(from / name)) continue;  // The file is already in its place.
    if (!is_earlier(name)) PERSEUS_RETURN_IF_ERROR(RefuseToReplace(directory / name, kind));
    PERSEUS_RETURN_IF_ERROR(move(from / name, directory / name));
  }
  for (const std::string& name : earlier.value_or(std::vector<std::string>())) {
    if (IsPlan(name) || std::ranges::count(*listed, name) > 0) continue;
    if (::unlink((directory / name).c_str()) == 0 || errno == ENOENT) continue;
    return SystemFailure(directory / name, "remove", {errno, std::generic_category()});
  }
  // A power cut must not reorder the steps.
  PERSEUS_RETURN_IF_ERROR(FlushDirectory(directory / "plans"));
  PERSEUS_RETURN_IF_ERROR(FlushDirectory(directory));
  PERSEUS_RETURN_IF_ERROR(move(from / kind.summary, summary));
  return FlushDirectory(directory);
}

constexpr const ResultKind* kAllResults[] = {&kPlanResults, &kEmulationResults, &kTuningResults,
                                             &kSearchResults};

// Removes DIR/.perseus-new of this run or of a killed run, even if the killed run was of another
// verb. If its results are complete, first puts them in their places.
Result<void> EndRun(const fs::path& directory) {
  const fs::path run = directory / kNewName;
  struct stat status {};
  if (::lstat(run.c_str(), &status) != 0) return {};
  // Another user may be able to write into the directory, and files of this user must not be moved
  // or removed through a link.
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    return Fail(
        InFile(run.string()),
        "was not written by perseus for this user (remove it, or use another directory with "
        "-o)");
  }
  for (const ResultKind* kind : kAllResults) {
    if (Exists(run / kind->summary)) PERSEUS_RETURN_IF_ERROR(PutInPlace(directory, *kind));
  }
  std::error_code error;
  fs::remove_all(run, error);
  if (error) return SystemFailure(run, "remove", error);
  return {};
}

// Returns the directory and the directories above it that do not exist, the deepest one first.
std::vector<fs::path> MissingDirectories(fs::path directory) {
  std::vector<fs::path> missing;
  std::error_code ignored;
  if (!directory.has_filename()) directory = directory.parent_path();  // After a slash at the end.
  for (; !directory.empty() && !fs::exists(directory, ignored);
       directory = directory.parent_path()) {
    missing.push_back(directory);
  }
  return missing;
}

// Whether `path` names the open file.
bool IsAt(const fs::path& path, const FileDescriptor& file) {
  struct stat named {};
  struct stat opened {};
  return ::lstat(path.c_str(), &named) == 0 && ::fstat(file.get(), &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

}  // namespace

const ResultKind kPlanResults{"perseus plan",
                              "summary.json",
                              "perseus-summary",
                              {"frontier.csv", "trace.json", "report.html"},
                              "plans/[^/]*\\.json|schedule\\.(csv|txt)"};
const ResultKind kEmulationResults{"perseus emulate",
                                   "emulation.json",
                                   "perseus-emulation",
                                   {"iterations.csv", "pp_ranks.csv", "trace.json"},
                                   ""};
const ResultKind kTuningResults{
    "perseus tune", "plan.json", "perseus-plan", {"profile.csv", "planned.csv", "options.csv"}, ""};
// The schedules of the rows "more-N" and "fits", each as CSV and in words.
const ResultKind kSearchResults{"perseus schedule search",
                                "search.json",
                                "perseus-schedule-search",
                                {},
                                "report\\.html|(fits|more-[0-9]+)\\.(csv|txt)"};

Result<std::vector<std::string>> FilesOfRun(const fs::path& directory, const ResultKind& kind) {
  PERSEUS_ASSIGN_OR_RETURN(auto listed, ListedFiles(directory / kind.summary, directory, kind));
  if (listed) return *std::move(listed);
  // A replacement first moves the earlier summary away. Its last step moves the new summary to its
  // place.
  if (Exists(directory / kNewName / kind.summary)) {
    return FailAs(ErrorKind::kSystem, InFile(directory.string()),
                  "its results are incomplete, because a run of {} ended while it replaced them, "
                  "or replaces them now (wait, or run it again with this -o: it begins with a "
                  "repair)",
                  kind.verb);
  }
  return Fail(InFile(directory.string()),
              "has no {}, so it is no directory of {} (give one that it wrote with -o, or files)",
              kind.summary, kind.verb);
}

ResultDirectory::ResultDirectory(fs::path path, const ResultKind& kind)
    : path_(std::move(path)), kind_(kind) {}

ResultDirectory::~ResultDirectory() {
  if (lock_) {
    (void)EndRun(path_);  // If this fails, the next run tries again.
    // Remove the file while this run still holds the lock.
    ::unlink((path_ / kLockName).c_str());
  }
  if (has_published_) return;
  for (const fs::path& directory : created_) ::rmdir(directory.c_str());
}

Result<void> ResultDirectory::Lock() {
  const fs::path path = path_ / kLockName;
  while (true) {
    std::vector<fs::path> missing = MissingDirectories(path_);
    if (!missing.empty()) created_ = std::move(missing);
    std::error_code error;
    fs::create_directories(path_, error);
    if (error) return SystemFailure(path_, "make the directory", error);
    FileDescriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    // Another run that ended without results may have removed the directory.
    if (!file && errno == ENOENT && !fs::exists(path_, error)) continue;
    if (!file) {
      return SystemFailure(path_, "write to the directory", {errno, std::generic_category()});
    }
    // If the file system has no locks, the run continues without protection.
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return FailAs(ErrorKind::kSystem, InFile(path_.string()),
                    "another run of perseus is about to write its results here (wait until it "
                    "ends, or use another directory with -o)");
    }
    // The run that had the lock removes the file at its end. Then another run may create the file
    // again.
    if (!IsAt(path, file)) continue;
    lock_ = std::move(file);
    return {};
  }
}

Result<void> ResultDirectory::Open() {
  PERSEUS_RETURN_IF_ERROR(Lock());
  // These signals must not end the process. If nobody reads the output any more, or if a file
  // exceeds the size limit of the shell, writing fails instead. Then the directory stays as it was.
  // (Not for all verbs: a training that `perseus run` starts would ignore these signals, too.)
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  PERSEUS_RETURN_IF_ERROR(EndRun(path_));
  PERSEUS_ASSIGN_OR_RETURN(auto listed,
                           ListedFiles(path_ / kind_.summary, path_, kind_, Listed::kOwned));
  earlier_ = std::move(listed).value_or(std::vector<std::string>());
  for (const std::string& name : earlier_) {
    if (!IsRealDirectory(path_ / name)) continue;
    return Fail(
        InFile((path_ / name).string()),
        "is a directory, where perseus writes a file (move it, or use another directory with "
        "-o)");
  }
  for (const std::string_view name : kind_.always) {
    if (name.empty() || std::ranges::count(earlier_, name) > 0) continue;
    PERSEUS_RETURN_IF_ERROR(RefuseToReplace(path_ / name, kind_));
  }
  return CheckPlansDirectory(path_, kind_);
}

std::vector<std::string> ResultDirectory::LeftPlans(const std::vector<std::string>& names) const {
  std::vector<std::string> left;
  for (const std::string& name : earlier_) {
    const bool stays = IsPlan(name) && std::ranges::count(names, name) == 0;
    if (stays && Exists(path_ / name)) left.push_back(name);
  }
  return left;
}

Result<void> ResultDirectory::Stage(const std::vector<ResultFile>& files) {
  // Other users must not be able to write into this directory, because the next run moves its
  // files.
  if (::mkdir((path_ / kNewName).c_str(), 0700) != 0) {
    return SystemFailure(path_ / kNewName, "write", {errno, std::generic_category()});
  }
  for (const ResultFile& file : files) {
    if (file.name == kind_.summary) {
      summary_ = file.contents;
      continue;
    }
    if (std::ranges::count(earlier_, file.name) == 0) {
      PERSEUS_RETURN_IF_ERROR(RefuseToReplace(path_ / file.name, kind_));
    }
    PERSEUS_RETURN_IF_ERROR(WriteFileAtomically(path_ / kNewName / file.name, file.contents));
  }
  return {};
}

Result<void> ResultDirectory::Publish() {
  if (summary_.empty()) return {};
  sigset_t ends;
  sigset_t before;
  sigemptyset(&ends);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&ends, signal);
  pthread_sigmask(SIG_BLOCK, &ends, &before);
  // With the summary, the new results are complete. From here on, they are the valid results.
  auto done = WriteFileAtomically(path_ / kNewName / kind_.summary, summary_);
  if (done) {
    done = EndRun(path_);
  } else {
    ::unlink((path_ / kNewName / kind_.summary).c_str());
  }
  has_published_ = done.has_value();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return done;
}

}  // namespace perseus::cli
