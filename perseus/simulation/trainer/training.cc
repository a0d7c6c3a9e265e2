#include "perseus/simulation/trainer/training.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <set>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/units.h"
#include "perseus/simulation/trainer/child_process.h"

namespace perseus::trainer {
namespace {

// After the first bad news: the others' come, and tell who was the first.
constexpr Nanoseconds kHearingOut = kSecond / 2;
// For ranks to give their GPUs back when they are told to end.
constexpr Nanoseconds kFarewell = 5 * kSecond;
constexpr Nanoseconds kLongestSleep = kSecond / 10;

struct SocketPair {
  FileDescriptor ends[2];
};
Result<SocketPair> MakeSocketPair() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return FailAs(ErrorKind::kSystem, "cannot make sockets for the ranks: {}",
                  std::strerror(errno));
  }
  return SocketPair{{FileDescriptor(ends[0]), FileDescriptor(ends[1])}};
}

class Training {
 public:
  explicit Training(const TrainingOptions& options)
      : options_(options), clock_(*options.nodes.front().node.clock()) {}

  Result<TrainingSummary> Run();

 private:
  struct Rank {
    int pipeline = 0;
    int rank = 0;
    FileDescriptor control;
    std::optional<ChildProcess> process;
    std::optional<Message> answer;  // Of the kind that is being collected.
    bool has_hung_up = false;
    bool is_here = false;  // Answered the roll call.
    std::string complaint;
  };
  struct Energy {
    double exact_j = 0;
    double published_j = 0;
  };

  Result<void> Launch();
  Result<void> LaunchRank(Rank& rank, FileDescriptor control,
                          const std::map<int, FileDescriptor>& peers);
  Result<void> RunSteps();
  // Waits for a message of that kind from every rank.
  Result<void> Collect(MessageKind kind, std::string_view what_they_do);
  Result<void> Hear();
  Result<void> HearRank(Rank& rank);
  void Tell(const Message& message);
  void LookForSignals();
  bool IsBadNews() const;
  Error Diagnose(std::string_view what_they_do);
  void End();
  Result<Energy> ReadEnergy() const;
  static std::string Describe(const Rank& rank) {
    return fmt::format("rank {} of pipeline {}", rank.rank, rank.pipeline);
  }

  const TrainingOptions& options_;
  Clock& clock_;  // Of all nodes.
  std::vector<Rank> ranks_;
  FileDescriptor signals_;
  bool is_asked_to_end_ = false;
  std::set<std::string> warnings_;
  TrainingSummary summary_;
};

// ---- Starting ----

Result<void> Training::Launch() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  signals_ = FileDescriptor(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) {
    return FailAs(ErrorKind::kSystem, "cannot wait for signals: {}", std::strerror(errno));
  }
  for (int pipeline = 0; pipeline < options_.pipelines; ++pipeline) {
    std::vector<std::map<int, FileDescriptor>> peers(static_cast<std::size_t>(options_.ranks));
    for (int rank = 0; rank < options_.ranks; ++rank) {
      for (const int neighbour : options_.neighbours[static_cast<std::size_t>(rank)]) {
        if (neighbour < rank) continue;
        PERSEUS_ASSIGN_OR_RETURN(auto pair, MakeSocketPair());
        peers[static_cast<std::size_t>(rank)][neighbour] = std::move(pair.ends[0]);
        peers[static_cast<std::size_t>(neighbour)][rank] = std::move(pair.ends[1]);
      }
    }
    for (int rank = 0; rank < options_.ranks; ++rank) {
      PERSEUS_ASSIGN_OR_RETURN(auto pair, MakeSocketPair());
      ranks_.push_back({.pipeline = pipeline,
                        .rank = rank,
                        .control = std::move(pair.ends[0]),
                        .process = {},
                        .answer = {},
                        .complaint = {}});
      auto launched =
          LaunchRank(ranks_.back(), std::move(pair.ends[1]), peers[static_cast<std::size_t>(rank)]);
      if (!launched) return launched;
    }
  }
  return {};
}

Result<void> Training::LaunchRank(Rank& rank, FileDescriptor control,
                                  const std::map<int, FileDescriptor>& peers) {
  RankSockets sockets{control.get(), {}};
  std::vector<int> kept{control.get()};
  for (const auto& [peer, socket] : peers) {
    sockets.peers.emplace_back(peer, socket.get());
    kept.push_back(socket.get());
  }
  const Seat seat =
      options_.seats[static_cast<std::size_t>(rank.pipeline * options_.ranks + rank.rank)];
  const TrainingNode& node = options_.nodes[static_cast<std::size_t>(seat.node)];
  ChildProcess::Start start{options_.command, options_.environment, std::move(kept)};
  for (std::string word : {std::string("--as-rank"), fmt::format("{}:{}", rank.pipeline, rank.rank),
                           std::string("--sockets"), Format(sockets)}) {
    start.command.push_back(std::move(word));
  }
  start.environment.emplace_back("PERSEUS_AGENT", node.agent);
  if (!node.job_directory.empty()) {
    start.environment.emplace_back("PERSEUS_JOB_DIR", node.job_directory);
  }
  start.environment.emplace_back("PERSEUS_DEVICES", "virtual:" + node.description.string());
  start.environment.emplace_back("PERSEUS_GPU",
                                 virtual_gpu::VirtualUuid(node.node.spec(), seat.gpu));
  PERSEUS_ASSIGN_OR_RETURN(auto launched, ChildProcess::Launch(start));
  rank.process = std::move(launched);
  return {};
}

// ---- Steps ----

Result<TrainingSummary> Training::Run() {
  auto run = Launch();
  if (run) run = Collect(MessageKind::kReady, "begin");
  if (run) run = RunSteps();
  End();
  if (!run) return Fail(run);
  return std::move(summary_);
}

Result<void> Training::RunSteps() {
  const auto part = clock_.TakePart(Clock::Part::kLeads);
  Message begin;
  begin.kind = MessageKind::kBeginStep;
  begin.time = clock_.Now();
  auto energy = ReadEnergy();
  if (!energy) return Fail(energy);
  Tell(begin);
  for (bool is_last = false; !is_last;) {
    if (auto done = Collect(MessageKind::kStepDone, "end a step"); !done) return done;
    // They tell a little ahead.
    Nanoseconds end = clock_.Now();
    for (const Rank& rank : ranks_) end = std::max(end, rank.answer->time);
    const std::atomic<std::uint32_t> never = 0;
    // The next step is announced first: ranks are to know before it is due.
    ++begin.step;
    const Nanoseconds begun = std::exchange(begin.time, end);
    is_last = is_asked_to_end_ || begin.step == options_.steps;
    if (!is_last) Tell(begin);
    while (clock_.Now() < end) clock_.WaitWhile(never, 0, end);
    const auto next_energy = ReadEnergy();
    if (!next_energy) return Fail(next_energy);
    summary_.steps.push_back({begun, end - begun, next_energy->exact_j - energy->exact_j,
                              next_energy->published_j - energy->published_j});
    energy = next_energy;
  }
  Message stop;
  stop.kind = MessageKind::kStop;
  Tell(stop);
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

Result<Training::Energy> Training::ReadEnergy() const {
  Energy energy;
  for (const Seat& seat : options_.seats) {
    PERSEUS_ASSIGN_OR_RETURN(
        const auto view, options_.nodes[static_cast<std::size_t>(seat.node)].node.Look(seat.gpu));
    energy.exact_j += view.reading.energy_j;
    energy.published_j += view.reading.published_energy_j;
  }
  return energy;
}

void Training::Tell(const Message& message) {
  // One that is gone shows when it is listened to.
  for (const Rank& rank : ranks_) (void)SendMessage(rank.control.get(), message);
}

// ---- Listening ----

Result<void> Training::Collect(MessageKind kind, std::string_view what_they_do) {
  // What comes next is sent only once it was asked for, so nothing is lost.
  for (Rank& rank : ranks_) rank.answer.reset();
  // In real time: a rank that was stopped stops a virtual one.
  Nanoseconds deadline = MonotonicNow() + options_.patience;
  bool is_called = false;
  const auto is_missing = [kind](const Rank& rank) {
    return !rank.answer || rank.answer->kind != kind;
  };
  while (std::any_of(ranks_.begin(), ranks_.end(), is_missing)) {
    if (auto heard = Hear(); !heard) return heard;
    const bool is_late = MonotonicNow() > deadline;
    if (is_late && is_called) return tl::unexpected<Error>(Diagnose(what_they_do));
    if (!is_called && (is_late || IsBadNews())) {
      Message call;
      call.kind = MessageKind::kRollCall;
      Tell(call);
      is_called = true;
      deadline = MonotonicNow() + kHearingOut;
    }
    // Before the first step there is nothing to end well.
    if (is_asked_to_end_ && kind == MessageKind::kReady) {
      return FailAs(ErrorKind::kSystem, "ended by a signal before the first step");
    }
  }
  return {};
}

Result<void> Training::Hear() {
  std::vector<pollfd> polled{{signals_.get(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    polled.push_back({rank.has_hung_up ? -1 : rank.control.get(), POLLIN, 0});
  }
  clock_.Poll(polled, clock_.Now() + kLongestSleep);
  LookForSignals();
  for (Rank& rank : ranks_) {
    if (auto heard = HearRank(rank); !heard) return heard;
  }
  return {};
}

Result<void> Training::HearRank(Rank& rank) {
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
        if (rank.complaint.empty()) rank.complaint = message.text;
        break;
      case MessageKind::kHere:
        rank.is_here = true;
        break;
      default:
        rank.answer = message;
    }
  }
  return {};
}

void Training::LookForSignals() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) is_asked_to_end_ = true;
}

bool Training::IsBadNews() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) {
    const bool ended_well = rank.answer && rank.answer->kind == MessageKind::kStatistics;
    return !rank.complaint.empty() || (rank.has_hung_up && !ended_well);
  });
}

// Who was the first: one that died by itself, one that says why it failed (and does not merely miss
// a neighbour), one that does not answer
// the roll call.
Error Training::Diagnose(std::string_view what_they_do) {
  std::string silent;
  for (Rank& rank : ranks_) {
    const pid_t pid = rank.process->pid();
    if (const auto end = rank.process->End(); end && rank.complaint.empty()) {
      return {fmt::format("{} (process {}) {}; the others were ended", Describe(rank), pid,
                          end->empty() ? "ended before the others" : *end),
              ErrorKind::kSystem};
    }
  }
  for (const Rank& rank : ranks_) {
    if (!rank.complaint.empty()) {
      return {fmt::format("{}: {}; the others were ended", Describe(rank), rank.complaint),
              ErrorKind::kSystem};
    }
    if (!rank.is_here && !rank.answer) {
      silent += fmt::format("{}{} (process {})", silent.empty() ? "" : ", ", Describe(rank),
                            rank.process->pid());
    }
  }
  return {fmt::format("{} did not {} within {:g} s (stopped, or the machine is overloaded: look at "
                      "the process, or raise --timeout); the others were ended",
                      silent.empty() ? "the ranks, all of which answer," : silent, what_they_do,
                      ToSeconds(options_.patience)),
          ErrorKind::kSystem};
}

// All ranks are gone when it returns; those that do not go are killed by their destructor.
void Training::End() {
  RealClock real;
  const Nanoseconds deadline = real.Now() + kFarewell;
  for (Rank& rank : ranks_) {
    const bool ended_well = rank.answer && rank.answer->kind == MessageKind::kStatistics;
    if (rank.process && !ended_well) rank.process->Send(SIGTERM);
    // One that was stopped hears SIGTERM only when it goes on.
    if (rank.process && !ended_well) rank.process->Send(SIGCONT);
    rank.control = FileDescriptor();
  }
  for (Rank& rank : ranks_) {
    while (rank.process && !rank.process->End() && real.Now() < deadline) {
      const std::atomic<std::uint32_t> never = 0;
      real.WaitWhile(never, 0, real.Now() + kSecond / 100);
    }
  }
  ranks_.clear();
}

}  // namespace

Result<std::vector<Seat>> AssignGpus(const std::vector<TrainingNode>& nodes, int pipelines,
                                     int ranks) {
  std::vector<Seat> seats;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const virtual_gpu::VirtualNodeSpec& spec = nodes[i].node.spec();
    if (spec.rate != 1) {
      return Fail("{}: rate is {}, and ranks measure real time (write rate = 1)",
                  spec.description.string(), spec.rate);
    }
    if (const auto& first = nodes.front().node.spec(); spec.clock != first.clock) {
      return Fail("{} and {} have different clocks, and a job has one (write the same clock)",
                  first.description.string(), spec.description.string());
    }
    for (int gpu = 0; gpu < spec.gpus; ++gpu) seats.push_back({static_cast<int>(i), gpu});
  }
  const auto wanted = static_cast<std::size_t>(pipelines) * static_cast<std::size_t>(ranks);
  if (seats.size() < wanted) {
    return Fail(
        "{} pipelines of {} ranks want {} GPUs, and the nodes have {} (name more nodes, raise gpus "
        "in "
        "their files, or lower --pipelines)",
        pipelines, ranks, wanted, seats.size());
  }
  seats.resize(wanted);
  return seats;
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
  if (!is_good) return Fail("--sockets is for the trainer's own use (leave it out)");
  return sockets;
}

}  // namespace perseus::trainer
