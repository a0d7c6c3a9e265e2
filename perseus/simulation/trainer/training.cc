#include "perseus/simulation/trainer/training.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/result.h"
#include "perseus/base/system_cause.h"
#include "perseus/base/units.h"

namespace perseus::trainer {
namespace {

// How long the parent still collects messages after the first failure, to find which rank failed
// first. On a busy machine, a healthy rank needs some time to answer.
constexpr Nanoseconds kTimeToCollectFailures = 2 * kSecond;
// How long ranks may take to return their GPUs after SIGTERM.
constexpr Nanoseconds kTimeToEnd = 5 * kSecond;
constexpr Nanoseconds kLongestSleep = kSecond / 10;

struct SocketPair {
  FileDescriptor ends[2];
};
Result<SocketPair> MakeSocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return SystemFail(errno, "cannot make sockets for the ranks");
  }
  return SocketPair{{FileDescriptor(ends[0]), FileDescriptor(ends[1])}};
}

constexpr int kCannotRun = 127;

// A child process that runs another program and does not outlive its parent.
class ChildProcess {
 public:
  struct Start {
    std::vector<std::string> command;  // The path of the program, and its arguments.
    // Variables that are added to the environment of this process.
    std::vector<std::pair<std::string, std::string>> environment;
    // Descriptors that the child keeps, although they are CLOEXEC.
    std::vector<int> sockets;
  };
  // Call it before this process has threads. The child receives SIGTERM when this process dies.
  static Result<ChildProcess> Launch(const Start& start) {
    std::vector<char*> words;
    for (const std::string& word : start.command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) {
      return SystemFail(errno, "cannot start a process");
    }
    if (pid > 0) return ChildProcess(pid);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(kCannotRun);  // The parent died before prctl.
    for (const int socket : start.sockets) fcntl(socket, F_SETFD, 0);
    for (const auto& [name, value] : start.environment) setenv(name.c_str(), value.c_str(), 1);
    execv(words.front(), words.data());
    _exit(kCannotRun);
  }

  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~ChildProcess() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  pid_t pid() const { return pid_; }  // 0 once End() has returned a value.
  void Send(int signal) const {
    if (pid_ != 0) kill(pid_, signal);
  }

  // Returns how the child ended, in words ("was killed by signal 9"), or nullopt while it runs. An
  // empty text means success.
  std::optional<std::string> End() {
    if (pid_ == 0) return end_;
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    pid_ = 0;
    if (WIFSIGNALED(status)) {
      const int signal = WTERMSIG(status);
      end_ = fmt::format("was killed by signal {} ({}{})", signal, strsignal(signal),
                         signal == SIGKILL ? ": by a user, or because memory ran out" : "");
    } else if (WEXITSTATUS(status) == kCannotRun) {
      end_ = "could not be started (does the program still exist at its path?)";
    } else if (WEXITSTATUS(status) != 0) {
      end_ = fmt::format("ended with status {}", WEXITSTATUS(status));
    }
    return end_;
  }

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
  std::string end_;
};

class Training {
 public:
  explicit Training(const TrainingOptions& options)
      : options_(options), clock_(*options.nodes.front().node.clock()) {}

  Result<TrainingSummary> Run() {
    auto run = Launch();
    if (run) run = Collect(MessageKind::kReady, "begin");
    if (run) run = RunSteps();
    End();
    if (!run) return Fail(run);
    return std::move(summary_);
  }

 private:
  struct Rank {
    int pipeline = 0;
    int rank = 0;
    FileDescriptor control;
    std::optional<ChildProcess> process;
    std::optional<Message> answer;  // An answer of the kind that Collect() waits for.
    bool has_hung_up = false;
    bool has_answered_ping = false;
    std::string failure;
  };
  struct Energy {
    double exact_j = 0;
    double published_j = 0;
  };

  Result<void> Launch() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    signals_ = FileDescriptor(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) {
      return SystemFail(errno, "cannot wait for signals");
    }
    for (int pipeline = 0; pipeline < options_.pipelines; ++pipeline) {
      std::vector<std::map<int, FileDescriptor>> peers(static_cast<std::size_t>(options_.ranks));
      for (int rank = 0; rank < options_.ranks; ++rank) {
        for (const int neighbor : options_.neighbors[static_cast<std::size_t>(rank)]) {
          if (neighbor < rank) continue;
          PERSEUS_ASSIGN_OR_RETURN(auto pair, MakeSocketPair());
          peers[static_cast<std::size_t>(rank)][neighbor] = std::move(pair.ends[0]);
          peers[static_cast<std::size_t>(neighbor)][rank] = std::move(pair.ends[1]);
        }
      }
      for (int rank = 0; rank < options_.ranks; ++rank) {
        PERSEUS_ASSIGN_OR_RETURN(auto pair, MakeSocketPair());
        ranks_.push_back({.pipeline = pipeline,
                          .rank = rank,
                          .control = std::move(pair.ends[0]),
                          .process = {},
                          .answer = {},
                          .failure = {}});
        auto launched = LaunchRank(ranks_.back(), std::move(pair.ends[1]),
                                   peers[static_cast<std::size_t>(rank)]);
        if (!launched) return launched;
      }
    }
    return {};
  }

  Result<void> LaunchRank(Rank& rank, FileDescriptor control,
                          const std::map<int, FileDescriptor>& peers) {
    RankSockets sockets{control.get(), {}};
    std::vector<int> kept{control.get()};
    for (const auto& [peer, socket] : peers) {
      sockets.peers.emplace_back(peer, socket.get());
      kept.push_back(socket.get());
    }
    const AssignedGpu assigned =
        options_.gpus[static_cast<std::size_t>(rank.pipeline * options_.ranks + rank.rank)];
    const TrainingNode& node = options_.nodes[static_cast<std::size_t>(assigned.node)];
    ChildProcess::Start start{options_.command, options_.environment, std::move(kept)};
    start.command.push_back(fmt::format("{}:{},{}", rank.pipeline, rank.rank, Format(sockets)));
    start.environment.emplace_back("PERSEUS_AGENT", node.agent);
    if (!node.job_directory.empty()) {
      start.environment.emplace_back("PERSEUS_JOB_DIR", node.job_directory);
    }
    start.environment.emplace_back("PERSEUS_DEVICES", "virtual:" + node.description.string());
    start.environment.emplace_back("PERSEUS_GPU",
                                   virtual_gpu::VirtualUuid(node.node.spec(), assigned.gpu));
    PERSEUS_ASSIGN_OR_RETURN(auto launched, ChildProcess::Launch(start));
    rank.process = std::move(launched);
    return {};
  }

  Result<void> RunSteps() {
    const auto part = clock_.TakePart(Clock::Part::kLeads);
    Message begin;
    begin.kind = MessageKind::kBeginStep;
    begin.time = clock_.Now();
    auto energy = ReadEnergy();
    if (!energy) return Fail(energy);
    SendToAll(begin);
    for (bool is_last = false; !is_last;) {
      if (auto done = Collect(MessageKind::kStepDone, "end a step"); !done) return done;
      // Ranks announce the end slightly before it comes.
      Nanoseconds end = clock_.Now();
      for (const Rank& rank : ranks_) end = std::max(end, rank.answer->time);
      // Announces the next step now, so that ranks receive the message before the step begins.
      ++begin.step;
      const Nanoseconds begun = std::exchange(begin.time, end);
      is_last = is_asked_to_end_ || begin.step == options_.steps;
      if (!is_last) SendToAll(begin);
      while (clock_.Now() < end) clock_.WaitUntil(end);
      const auto next_energy = ReadEnergy();
      if (!next_energy) return Fail(next_energy);
      summary_.steps.push_back({begun, end - begun, next_energy->exact_j - energy->exact_j,
                                next_energy->published_j - energy->published_j});
      energy = next_energy;
    }
    Message stop;
    stop.kind = MessageKind::kStop;
    SendToAll(stop);
    if (auto ended = Collect(MessageKind::kStatistics, "end"); !ended) return ended;
    for (const Rank& rank : ranks_) {
      const RankStatistics& one = rank.answer->statistics;
      RankStatistics& all = summary_.statistics;
      all.instructions += one.instructions;
      all.wakeup_late_sum += one.wakeup_late_sum;
      all.wakeup_late_most = std::max(all.wakeup_late_most, one.wakeup_late_most);
      all.start_late_sum += one.start_late_sum;
      all.start_late_most = std::max(all.start_late_most, one.start_late_most);
      all.forecast_off_sum += one.forecast_off_sum;
      all.forecast_off_most = std::max(all.forecast_off_most, one.forecast_off_most);
      all.clock_requests += one.clock_requests;
      all.warnings += one.warnings;
    }
    return {};
  }

  // Waits for a message of this kind from every rank. `what_they_do` completes "dp_rank 0,
  // pp_rank 1 did not ...".
  Result<void> Collect(MessageKind kind, std::string_view what_they_do) {
    // Ranks send the next answer only after the next request, so this loses nothing.
    for (Rank& rank : ranks_) rank.answer.reset();
    // In real time, because a rank that is stopped stops a virtual clock.
    Nanoseconds deadline = MonotonicNow() + options_.rank_timeout;
    bool has_sent_ping = false;
    const auto is_missing = [kind](const Rank& rank) {
      return !rank.answer || rank.answer->kind != kind;
    };
    while (std::any_of(ranks_.begin(), ranks_.end(), is_missing)) {
      if (auto received = Receive(); !received) return received;
      const bool is_late = MonotonicNow() > deadline;
      if (is_late && has_sent_ping) return tl::unexpected<Error>(Diagnose(what_they_do));
      if (!has_sent_ping && (is_late || HasRankFailed())) {
        Message ping;
        ping.kind = MessageKind::kPing;
        SendToAll(ping);
        has_sent_ping = true;
        deadline = MonotonicNow() + kTimeToCollectFailures;
      }
      // Before the first step, no step has to be completed.
      if (is_asked_to_end_ && kind == MessageKind::kReady) {
        return FailAs(ErrorKind::kSystem, "ended by a signal before the first step");
      }
    }
    return {};
  }

  Result<void> Receive() {
    std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
    for (const Rank& rank : ranks_) {
      polled.push_back({rank.has_hung_up ? -1 : rank.control.get(), POLLIN, 0});
    }
    clock_.Poll(polled, clock_.Now() + kLongestSleep);
    ReadSignals();
    for (Rank& rank : ranks_) {
      if (auto received = ReceiveFrom(rank); !received) return received;
    }
    return {};
  }

  Result<void> ReceiveFrom(Rank& rank) {
    while (!rank.has_hung_up) {
      PERSEUS_ASSIGN_OR_RETURN(const auto received, ReceiveMessage(rank.control.get()));
      if (received.has_ended) rank.has_hung_up = true;
      if (!received.message) return {};
      const Message& message = *received.message;
      switch (message.kind) {
        case MessageKind::kWarning:
          if (options_.warn && warnings_.insert(message.text).second) {
            options_.warn(fmt::format("{}: {}", Describe(rank), message.text));
          }
          break;
        case MessageKind::kFailed:
          if (rank.failure.empty()) rank.failure = message.text;
          break;
        case MessageKind::kPong:
          rank.has_answered_ping = true;
          break;
        default:
          rank.answer = message;
      }
    }
    return {};
  }

  void SendToAll(const Message& message) {
    // If a rank is gone, Receive() detects it.
    for (const Rank& rank : ranks_) (void)SendMessage(rank.control.get(), message);
  }

  void ReadSignals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) is_asked_to_end_ = true;
  }

  bool HasRankFailed() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
      const bool ended_well = rank.answer && rank.answer->kind == MessageKind::kStatistics;
      return !rank.failure.empty() || (rank.has_hung_up && !ended_well);
    });
  }

  // Finds the rank that failed first. Checks three cases in this order: the process of a rank ended
  // without a message, a rank sent a failure, a rank does not answer the ping.
  Error Diagnose(std::string_view what_they_do) {
    std::string silent;
    for (Rank& rank : ranks_) {
      const pid_t pid = rank.process->pid();
      if (const auto end = rank.process->End(); end && rank.failure.empty()) {
        return {fmt::format("{} (process {}) {}; the trainer ended the other ranks", Describe(rank),
                            pid, end->empty() ? "ended before the others" : *end),
                ErrorKind::kSystem};
      }
    }
    for (const Rank& rank : ranks_) {
      if (!rank.failure.empty()) {
        return {
            fmt::format("{}: {}; the trainer ended the other ranks", Describe(rank), rank.failure),
            ErrorKind::kSystem};
      }
      if (!rank.has_answered_ping && !rank.answer) {
        silent += fmt::format("{}{} (process {})", silent.empty() ? "" : ", ", Describe(rank),
                              rank.process->pid());
      }
    }
    return {
        fmt::format("{} did not {} within {:g} s (a process is stopped, or the machine is "
                    "overloaded: look at the process, or raise `timeout`); the trainer ended the "
                    "other ranks",
                    silent.empty() ? "the ranks, which all answer," : silent, what_they_do,
                    ToSeconds(options_.rank_timeout)),
        ErrorKind::kSystem};
  }

  // All ranks have ended when End() returns. The destructors kill ranks that do not end in time.
  void End() {
    RealClock real;
    const Nanoseconds deadline = real.Now() + kTimeToEnd;
    for (Rank& rank : ranks_) {
      const bool ended_well = rank.answer && rank.answer->kind == MessageKind::kStatistics;
      if (rank.process && !ended_well) {
        // A stopped process handles SIGTERM only after SIGCONT. SIGCONT must come first. If it
        // comes later, it may discard a SIGSTOP that the leak check of the rank uses at the end of
        // the rank.
        rank.process->Send(SIGCONT);
        rank.process->Send(SIGTERM);
      }
      rank.control = FileDescriptor();
    }
    for (Rank& rank : ranks_) {
      while (rank.process && !rank.process->End() && real.Now() < deadline) {
        real.WaitUntil(real.Now() + kSecond / 100);
      }
    }
    ranks_.clear();
  }

  Result<Energy> ReadEnergy() const {
    Energy energy;
    for (const AssignedGpu& assigned : options_.gpus) {
      const TrainingNode& node = options_.nodes[static_cast<std::size_t>(assigned.node)];
      PERSEUS_ASSIGN_OR_RETURN(const auto view, node.node.Look(assigned.gpu));
      energy.exact_j += view.reading.energy_j;
      energy.published_j += view.reading.published_energy_j;
    }
    return energy;
  }

  static std::string Describe(const Rank& rank) {
    return fmt::format("dp_rank {}, pp_rank {}", rank.pipeline, rank.rank);
  }

  const TrainingOptions& options_;
  Clock& clock_;  // All nodes have the same clock.
  std::vector<Rank> ranks_;
  FileDescriptor signals_;
  bool is_asked_to_end_ = false;
  std::set<std::string> warnings_;
  TrainingSummary summary_;
};

// ---- Starting ----

// ---- Steps ----

// ---- Receiving ----

}  // namespace

Result<std::vector<AssignedGpu>> AssignGpus(const std::vector<TrainingNode>& nodes, int pipelines,
                                            int ranks) {
  std::vector<AssignedGpu> gpus;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const virtual_gpu::VirtualNodeSpec& spec = nodes[i].node.spec();
    if (spec.rate != 1) {
      return Fail(InFile(spec.description.string()),
                  "rate is {}, but ranks measure real time (write rate = 1)", spec.rate);
    }
    if (const auto& first = nodes.front().node.spec(); spec.clock != first.clock) {
      return Fail("{} and {} have different clocks, but a job has one (write the same clock)",
                  first.description.string(), spec.description.string());
    }
    for (int gpu = 0; gpu < spec.gpus; ++gpu) gpus.push_back({static_cast<int>(i), gpu});
  }
  const auto needed = static_cast<std::size_t>(pipelines) * static_cast<std::size_t>(ranks);
  if (gpus.size() < needed) {
    return Fail(
        "{} pipelines of {} pp_ranks need {} GPUs, but the nodes have {} (name more nodes, raise "
        "gpus in their files, or lower `pipelines`)",
        pipelines, ranks, needed, gpus.size());
  }
  gpus.resize(needed);
  return gpus;
}

Result<TrainingSummary> RunTraining(const TrainingOptions& options) {
  return Training(options).Run();
}

std::string Format(const RankSockets& sockets) {
  std::string text = fmt::format("{}", sockets.control);
  for (const auto& [peer, socket] : sockets.peers) text += fmt::format(",{}:{}", peer, socket);
  return text;
}

Result<RankSockets> ParseRankSockets(std::string_view text) {
  RankSockets sockets;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  const auto number = [&](int& value) {
    const auto parsed = std::from_chars(at, end, value);
    at = parsed.ptr;
    return parsed.ec == std::errc() && value >= 0;
  };
  bool is_good = number(sockets.control);
  while (is_good && at != end) {
    std::pair<int, int> peer;
    is_good =
        *at++ == ',' && number(peer.first) && at != end && *at++ == ':' && number(peer.second);
    sockets.peers.push_back(peer);
  }
  if (!is_good)
    return Fail("the sockets of a rank are only for the trainer itself (leave them out)");
  return sockets;
}

}  // namespace perseus::trainer
