#include "perseus/simulation/trainer/rank_process.h"

#include <perseus.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/simulation/trainer/message.h"

namespace perseus::trainer {
namespace {

// In real time.
constexpr Nanoseconds kLead = 3'000'000;
// A clock that lands brings an end nearer, and nobody says so: look again this often at least.
constexpr Nanoseconds kLeastLook = 2'000'000;

// The ABI's numbers are those of the computations.
static_assert(static_cast<int>(InstructionKind::kForward) == PERSEUS_FORWARD &&
              static_cast<int>(InstructionKind::kBackward) == PERSEUS_BACKWARD &&
              static_cast<int>(InstructionKind::kBackwardInput) == PERSEUS_BACKWARD_INPUT &&
              static_cast<int>(InstructionKind::kBackwardWeight) == PERSEUS_BACKWARD_WEIGHT &&
              static_cast<int>(InstructionKind::kRecompute) == PERSEUS_RECOMPUTE);

struct CloseSession {
  void operator()(perseus_session* session) const { perseus_close(session); }
};
using Session = std::unique_ptr<perseus_session, CloseSession>;

class RankProcess {
 public:
  RankProcess(const virtual_gpu::VirtualNode& node, const RankProcessOptions& options,
              virtual_gpu::VirtualWorker worker)
      : node_(node), options_(options), clock_(*node.clock()), worker_(std::move(worker)) {}

  Result<void> Run();

 private:
  struct InFlight {
    std::size_t index = 0;                // In the work.
    std::uint64_t run = 0;                // The GPU's number for it.
    Nanoseconds possible = 0;             // When its input was there and the step had begun.
    std::optional<Nanoseconds> told_end;  // What others were told.
    bool has_begun = false;               // The client library was told.
  };
  // By the clock.
  struct RealRun {
    Nanoseconds begin = 0;
    Nanoseconds finish = 0;
  };

  Result<void> Open();
  Result<void> Act();
  void BeginStep();
  Result<void> Fill();
  Result<void> Follow(InFlight& flight, bool is_first);
  Nanoseconds NextLook(const RealRun& run, Nanoseconds now, Nanoseconds end) const;
  Result<void> Tell(InFlight& flight, Nanoseconds end);
  void Begin(InFlight& flight);
  void End(const InFlight& flight, const RealRun& run);
  void EndStep();
  Result<void> Wait();
  Result<void> DescribeSignal() const;
  Result<void> Hear(int socket, int peer);
  Result<void> Take(const Message& message);
  Result<void> Say(const Message& message) { return SendMessage(options_.control, message); }

  Result<RealRun> Look(const InFlight& flight);
  std::optional<Nanoseconds> InputTime(std::size_t index) const;
  const RankInstruction& WorkOf(std::size_t index) const { return options_.work[index]; }
  void WakeAt(Nanoseconds time) { wake_at_ = std::min(wake_at_, time); }

  const virtual_gpu::VirtualNode& node_;
  const RankProcessOptions& options_;
  Clock& clock_;
  std::shared_ptr<void> part_;  // In a virtual time: then nobody is woken late.
  virtual_gpu::VirtualWorker worker_;
  Session session_;
  FileDescriptor signals_;

  bool is_stopping_ = false;
  // The next step, or the word that there is none. The end of a step is told before it comes, so
  // either may be here before this rank has ended its own.
  std::optional<Message> next_step_;
  std::int64_t step_ = -1;
  bool is_in_step_ = false;          // Between a kBeginStep and the end of its last instruction.
  bool has_announced_step_ = false;  // To the client library.
  Nanoseconds step_begin_ = 0;
  std::size_t next_ = 0;            // The first that is not in the GPU's queue yet.
  std::deque<InFlight> in_flight_;  // The running one first, or the one that will.
  std::map<std::pair<std::int64_t, Tensor>, Nanoseconds> arrived_;  // By step.
  std::set<int> gone_peers_;                                        // They hung up.
  Nanoseconds last_end_ = 0;
  Nanoseconds wake_at_ = Clock::kNever;
  RankStatistics statistics_;
};

Result<void> RankProcess::Open() {
  // Before there are threads, which keep what they were started with.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigprocmask(SIG_BLOCK, &ends, nullptr);
  sigdelset(&ends, SIGINT);  // Ctrl-C is the parent's to deal with.
  signals_ = FileDescriptor(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_) {
    return FailAs(ErrorKind::kSystem, "cannot wait for signals: {}", std::strerror(errno));
  }
  prctl(PR_SET_TIMERSLACK, 1UL);

  if (auto set = worker_.SetRest(virtual_gpu::Rest::kBlocking); !set) return set;
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.dp_rank = options_.pipeline;
  options.pp_rank = options_.rank;
  options.flags = PERSEUS_QUIET;
  session_.reset(perseus_open(&options));
  // Before the parent may begin a step.
  part_ = clock_.TakePart(Clock::Part::kFollows);
  Message ready;
  ready.kind = MessageKind::kReady;
  return Say(ready);
}

Result<void> RankProcess::Run() {
  if (auto opened = Open(); !opened) return opened;
  while (!is_stopping_) {
    wake_at_ = Clock::kNever;
    if (auto acted = Act(); !acted) return acted;
    if (is_stopping_) break;
    if (auto waited = Wait(); !waited) return waited;
  }
  perseus_counters counters{};
  counters.size = sizeof counters;
  perseus_read_counters(session_.get(), &counters);
  statistics_.clock_requests = static_cast<std::int64_t>(counters.clock_requests);
  statistics_.warnings = static_cast<std::int64_t>(counters.warnings);
  session_.reset();
  Message last;
  last.kind = MessageKind::kStatistics;
  last.statistics = statistics_;
  // The parent may be gone; then nobody wants to know.
  (void)Say(last);
  return {};
}

// ---- What is due ----

Result<void> RankProcess::Act() {
  if (!is_in_step_) BeginStep();
  if (!is_in_step_) return {};
  if (!has_announced_step_) {
    if (clock_.Now() >= step_begin_) {
      perseus_step_begin(session_.get());
      has_announced_step_ = true;
    } else {
      WakeAt(step_begin_);
    }
  }
  // What has ended makes room in the queue, and what is queued may be about to end.
  for (bool has_room = true; has_room;) {
    if (auto filled = Fill(); !filled) return filled;
    const std::size_t filled_to = in_flight_.size();
    for (std::size_t i = 0; i < in_flight_.size();) {
      const std::size_t count = in_flight_.size();
      if (auto followed = Follow(in_flight_[i], i == 0); !followed) return followed;
      if (in_flight_.size() == count) ++i;
    }
    has_room = in_flight_.size() < filled_to;
  }
  if (in_flight_.empty() && next_ == options_.work.size() && has_announced_step_) {
    EndStep();
    if (next_step_) WakeAt(0);
  }
  return {};
}

void RankProcess::BeginStep() {
  if (!next_step_) return;
  const Message begun = *std::exchange(next_step_, std::nullopt);
  if (begun.kind == MessageKind::kStop) {
    is_stopping_ = true;
    return;
  }
  step_ = begun.step;
  step_begin_ = begun.time;
  next_ = 0;
  is_in_step_ = true;
  has_announced_step_ = false;
}

Result<void> RankProcess::Fill() {
  while (next_ < options_.work.size() && in_flight_.size() < 2) {
    const auto input_time = InputTime(next_);
    if (!input_time) return {};
    if (!in_flight_.empty()) {
      // The queue takes one, and that may wait for its input's time.
      PERSEUS_ASSIGN_OR_RETURN(const auto last, Look(in_flight_.back()));
      if (last.begin > clock_.Now()) {
        WakeAt(last.begin);
        return {};
      }
    }
    const Nanoseconds possible = std::max(*input_time, step_begin_);
    PERSEUS_ASSIGN_OR_RETURN(const auto run,
                             worker_.Enqueue(WorkOf(next_).table, node_.ToVirtual(possible)));
    in_flight_.push_back({next_, run, possible, {}, false});
    ++next_;
  }
  return {};
}

// Looks at one that runs or is queued, and does what is due about it. Removes it once it is done.
Result<void> RankProcess::Follow(InFlight& flight, bool is_first) {
  PERSEUS_ASSIGN_OR_RETURN(const auto run, Look(flight));
  const Nanoseconds now = clock_.Now();
  if (!flight.told_end) {
    const Nanoseconds tell_at = run.finish - (part_ ? 0 : kLead);
    if (tell_at <= now) {
      if (auto told = Tell(flight, run.finish); !told) return told;
    } else {
      WakeAt(std::min(tell_at, NextLook(run, now, tell_at)));
    }
  }
  // The client library is told of one after the other.
  if (!is_first || !has_announced_step_) return {};
  if (!flight.has_begun) {
    if (run.begin > now) {
      WakeAt(run.begin);
      return {};
    }
    Begin(flight);
  }
  if (run.finish > now) {
    WakeAt(run.finish);
    return {};
  }
  End(flight, run);
  in_flight_.pop_front();
  return {};
}

// When a clock may have been set of which nobody says anything.
Nanoseconds RankProcess::NextLook(const RealRun& run, Nanoseconds now, Nanoseconds end) const {
  if (!part_) return now + std::max(kLeastLook, (end - now) / 2);
  // No time passes until the agent has set what the instruction begins with.
  return now < run.begin + kLeastLook ? run.begin + kLeastLook : Clock::kNever;
}

Result<void> RankProcess::Tell(InFlight& flight, Nanoseconds end) {
  flight.told_end = end;
  const RankInstruction& done = WorkOf(flight.index);
  if (done.output) {
    Message message;
    message.kind = MessageKind::kTensor;
    message.step = step_;
    message.time = end + options_.p2p;
    message.tensor = done.output->tensor;
    // A neighbour that is gone shows when it is listened to.
    (void)SendMessage(options_.peers.at(done.output->rank), message);
  }
  if (flight.index + 1 < options_.work.size()) return {};
  Message message;
  message.kind = MessageKind::kStepDone;
  message.step = step_;
  message.time = end;
  return Say(message);
}

void RankProcess::Begin(InFlight& flight) {
  flight.has_begun = true;
  const RankInstruction& begun = WorkOf(flight.index);
  if (!IsComputation(begun.kind)) return;
  perseus_instruction_begin(session_.get(), static_cast<std::int32_t>(begun.kind), begun.microbatch,
                            begun.chunk);
}

void RankProcess::End(const InFlight& flight, const RealRun& run) {
  if (IsComputation(WorkOf(flight.index).kind)) perseus_instruction_end(session_.get());
  RankStatistics& statistics = statistics_;
  ++statistics.instructions;
  const auto count = [](Nanoseconds value, Nanoseconds& sum, Nanoseconds& most) {
    sum += value;
    most = std::max(most, value);
  };
  count(clock_.Now() - run.finish, statistics.wakeup_late_sum, statistics.wakeup_late_most);
  // Virtual and real time round differently by a nanosecond.
  count(std::max<Nanoseconds>(0, run.begin - std::max(flight.possible, last_end_) - 1),
        statistics.start_late_sum, statistics.start_late_most);
  count(std::abs(flight.told_end.value_or(run.finish) - run.finish), statistics.forecast_off_sum,
        statistics.forecast_off_most);
  last_end_ = run.finish;
}

void RankProcess::EndStep() {
  perseus_step_end(session_.get());
  is_in_step_ = false;
  arrived_.erase(arrived_.begin(), arrived_.lower_bound({step_ + 1, Tensor{false, -1, -1}}));
  std::array<char, sizeof Message::text> text{};
  while (perseus_take_warning(session_.get(), text.data(), text.size()) > 0) {
    (void)Say(TextMessage(MessageKind::kWarning, text.data()));
  }
}

Result<RankProcess::RealRun> RankProcess::Look(const InFlight& flight) {
  PERSEUS_ASSIGN_OR_RETURN(const auto run, worker_.RunOf(flight.run));
  return RealRun{node_.ToReal(run.begin), node_.ToReal(run.finish)};
}

std::optional<Nanoseconds> RankProcess::InputTime(std::size_t index) const {
  const auto& input = WorkOf(index).input;
  if (!input) return 0;
  const auto arrived = arrived_.find({step_, *input});
  if (arrived == arrived_.end()) return std::nullopt;
  return arrived->second;
}

// ---- What others say ----

// Nothing if it is the parent's, which knows.
Result<void> RankProcess::DescribeSignal() const {
  signalfd_siginfo info{};
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return {};
  if (static_cast<pid_t>(info.ssi_pid) == getppid()) return {};
  return FailAs(ErrorKind::kSystem, "was told to end by signal {} from process {} of user {}",
                info.ssi_signo, info.ssi_pid, info.ssi_uid);
}

Result<void> RankProcess::Wait() {
  std::vector<pollfd> polled{{options_.control, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
  for (const auto& [peer, socket] : options_.peers) {
    polled.push_back({gone_peers_.contains(peer) ? -1 : socket, POLLIN, 0});
  }
  clock_.Poll(polled, wake_at_);
  if (polled[1].revents != 0) {
    is_stopping_ = true;
    return DescribeSignal();
  }
  if (auto heard = Hear(options_.control, -1); !heard || is_stopping_) return heard;
  for (const auto& [peer, socket] : options_.peers) {
    if (auto heard = Hear(socket, peer); !heard) return heard;
  }
  return {};
}

Result<void> RankProcess::Hear(int socket, int peer) {
  for (;;) {
    PERSEUS_ASSIGN_OR_RETURN(const auto received, ReceiveMessage(socket));
    if (received.has_ended && peer < 0) {
      is_stopping_ = true;  // Without a parent there is no job.
      return {};
    }
    if (received.has_ended) {
      // Whether it may is the parent's to know.
      gone_peers_.insert(peer);
      return {};
    }
    if (!received.message) return {};
    if (auto taken = Take(*received.message); !taken) return taken;
    if (is_stopping_) return {};
  }
}

Result<void> RankProcess::Take(const Message& message) {
  switch (message.kind) {
    case MessageKind::kTensor:
      arrived_[{message.step, message.tensor}] = message.time;
      return {};
    case MessageKind::kBeginStep:
    case MessageKind::kStop:
      next_step_ = message;
      return {};
    case MessageKind::kRollCall: {
      Message here;
      here.kind = MessageKind::kHere;
      return Say(here);
    }
    default:
      return Fail("a message came that ranks do not take (all have to be of the same version)");
  }
}

}  // namespace

Result<void> RunRankProcess(const virtual_gpu::VirtualNode& node,
                            const RankProcessOptions& options) {
  PERSEUS_ASSIGN_OR_RETURN(auto worker, node.OpenWorker(options.gpu));
  return RankProcess(node, options, std::move(worker)).Run();
}

}  // namespace perseus::trainer
