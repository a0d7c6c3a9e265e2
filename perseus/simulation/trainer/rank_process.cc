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
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "perseus/base/clock.h"
#include "perseus/base/file_descriptor.h"
#include "perseus/base/system_cause.h"
#include "perseus/simulation/trainer/message.h"

namespace perseus::trainer {
namespace {

// How long before its end an instruction is announced, in real time.
constexpr Nanoseconds kLead = 3'000'000;
// A new clock may make an instruction end earlier, and no message reports this. So a rank checks
// the end at least this often.
constexpr Nanoseconds kCheckPeriod = 2 * kMillisecond;

// The client library's numbers of instruction kinds are those of InstructionKind.
static_assert(static_cast<int>(InstructionKind::kForward) == PERSEUS_FORWARD &&
              static_cast<int>(InstructionKind::kBackward) == PERSEUS_BACKWARD &&
              static_cast<int>(InstructionKind::kBackwardInput) == PERSEUS_BACKWARD_INPUT &&
              static_cast<int>(InstructionKind::kBackwardWeight) == PERSEUS_BACKWARD_WEIGHT &&
              static_cast<int>(InstructionKind::kRecompute) == PERSEUS_RECOMPUTE &&
              static_cast<int>(InstructionKind::kOptimizerStep) == PERSEUS_OPTIMIZER_STEP);

struct CloseSession {
  void operator()(perseus_session* session) const { perseus_close(session); }
};
using Session = std::unique_ptr<perseus_session, CloseSession>;

class RankProcess {
 public:
  RankProcess(const virtual_gpu::VirtualNode& node, const RankProcessOptions& options,
              virtual_gpu::VirtualWorker worker)
      : node_(node), options_(options), clock_(*node.clock()), worker_(std::move(worker)) {}

  Result<void> Run() {
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
    // An error means that the parent is gone. Then nobody needs the statistics.
    (void)SendToParent(last);
    return {};
  }

 private:
  struct InFlight {
    std::size_t index = 0;                     // In options_.work.
    std::uint64_t run = 0;                     // The GPU's number for this run.
    Nanoseconds possible = 0;                  // When its input had arrived and the step had begun.
    std::optional<Nanoseconds> announced_end;  // As sent to other processes.
    bool has_begun = false;                    // As reported to the client library.
  };
  // The times of a run by clock_.
  struct RealRun {
    Nanoseconds begin = 0;
    Nanoseconds finish = 0;
  };

  Result<void> Open() {
    // Blocks the signals before threads start, because threads inherit the signal mask.
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    sigdelset(&ends, SIGINT);  // The parent handles Ctrl-C.
    signals_ = FileDescriptor(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) {
      return SystemFail(errno, "cannot wait for signals");
    }
    prctl(PR_SET_TIMERSLACK, 1UL);

    if (auto set = worker_.SetRest(virtual_gpu::Rest::kBlocking); !set) return set;
    perseus_options options = PERSEUS_OPTIONS_INIT;
    options.dp_rank = options_.pipeline;
    options.pp_rank = options_.rank;
    options.stages = options_.stages.c_str();
    options.pp_ranks = options_.pp_ranks;
    options.flags = PERSEUS_QUIET;
    session_.reset(perseus_open(&options));
    // Takes part before the parent may begin a step.
    part_ = clock_.TakePart(Clock::Part::kFollows);
    Message ready;
    ready.kind = MessageKind::kReady;
    return SendToParent(ready);
  }

  Result<void> Act() {
    if (!is_in_step_) BeginStep();
    if (!is_in_step_) return {};
    if (!has_reported_step_) {
      if (clock_.Now() >= step_begin_) {
        perseus_step_begin(session_.get());
        has_reported_step_ = true;
      } else {
        WakeAt(step_begin_);
      }
    }
    // An instruction that ends makes room in the queue. The next one may end soon, too.
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
    if (in_flight_.empty() && next_ == options_.work.size() && has_reported_step_) {
      EndStep();
      if (next_step_) WakeAt(0);
    }
    return {};
  }

  void BeginStep() {
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
    has_reported_step_ = false;
  }

  Result<void> Fill() {
    while (next_ < options_.work.size() && in_flight_.size() < 2) {
      const auto input_time = InputTime(next_);
      if (!input_time) return {};
      if (!in_flight_.empty()) {
        // The GPU's queue holds one instruction, which may wait for the time of its input.
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

  // Performs the due actions for an instruction that runs or is queued. Removes it after its end.
  Result<void> Follow(InFlight& flight, bool is_first) {
    PERSEUS_ASSIGN_OR_RETURN(const auto run, Look(flight));
    const Nanoseconds now = clock_.Now();
    if (!flight.announced_end) {
      const Nanoseconds announce_at = run.finish - (part_ ? 0 : kLead);
      if (announce_at <= now) {
        if (auto announced = AnnounceEnd(flight, run.finish); !announced) return announced;
      } else {
        WakeAt(std::min(announce_at, NextCheck(run, now, announce_at)));
      }
    }
    // Instructions are reported to the client library one after another.
    if (!is_first || !has_reported_step_) return {};
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

  // When to check again whether a new clock has changed the end.
  Nanoseconds NextCheck(const RealRun& run, Nanoseconds now, Nanoseconds end) const {
    if (!part_) return now + std::max(kCheckPeriod, (end - now) / 2);
    // Virtual time stands still until the agent has set the clock at which the instruction begins.
    return now < run.begin + kCheckPeriod ? run.begin + kCheckPeriod : Clock::kNever;
  }

  Result<void> AnnounceEnd(InFlight& flight, Nanoseconds end) {
    flight.announced_end = end;
    const RankInstruction& done = WorkOf(flight.index);
    if (done.output) {
      Message message;
      message.kind = MessageKind::kTensor;
      message.step = step_;
      message.time = end + options_.p2p;
      message.tensor = done.output->tensor;
      // If the neighbor is gone, Receive() detects it.
      (void)SendMessage(options_.peers.at(done.output->rank), message);
    }
    if (flight.index + 1 < options_.work.size()) return {};
    Message message;
    message.kind = MessageKind::kStepDone;
    message.step = step_;
    message.time = end;
    return SendToParent(message);
  }

  void Begin(InFlight& flight) {
    flight.has_begun = true;
    const RankInstruction& begun = WorkOf(flight.index);
    if (!IsComputation(begun.kind)) return;
    perseus_instruction_begin(session_.get(), static_cast<std::int32_t>(begun.kind),
                              begun.microbatch, begun.chunk);
  }

  void End(const InFlight& flight, const RealRun& run) {
    if (IsComputation(WorkOf(flight.index).kind)) perseus_instruction_end(session_.get());
    RankStatistics& statistics = statistics_;
    ++statistics.instructions;
    const auto count = [](Nanoseconds value, Nanoseconds& sum, Nanoseconds& most) {
      sum += value;
      most = std::max(most, value);
    };
    count(clock_.Now() - run.finish, statistics.wakeup_late_sum, statistics.wakeup_late_most);
    // The conversion between virtual and real time may be off by a nanosecond.
    count(std::max<Nanoseconds>(0, run.begin - std::max(flight.possible, last_end_) - 1),
          statistics.start_late_sum, statistics.start_late_most);
    count(std::abs(flight.announced_end.value_or(run.finish) - run.finish),
          statistics.forecast_off_sum, statistics.forecast_off_most);
    last_end_ = run.finish;
  }

  void EndStep() {
    perseus_step_end(session_.get());
    is_in_step_ = false;
    arrived_.erase(arrived_.begin(), arrived_.lower_bound({step_ + 1, Tensor{false, -1, -1}}));
    std::array<char, sizeof Message::text> text{};
    while (perseus_take_warning(session_.get(), text.data(), text.size()) > 0) {
      (void)SendToParent(TextMessage(MessageKind::kWarning, text.data()));
    }
  }

  Result<void> Wait() {
    std::vector<pollfd> polled{{options_.control, POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    for (const auto& [peer, socket] : options_.peers) {
      polled.push_back({gone_peers_.contains(peer) ? -1 : socket, POLLIN, 0});
    }
    clock_.Poll(polled, wake_at_);
    if (polled[1].revents != 0) {
      is_stopping_ = true;
      return DescribeSignal();
    }
    auto received = Receive(options_.control, -1);
    if (!received || is_stopping_) return received;
    for (const auto& [peer, socket] : options_.peers) {
      PERSEUS_RETURN_IF_ERROR(Receive(socket, peer));
    }
    return {};
  }

  // Fails unless the parent sent the signal. (The parent knows the cause.)
  Result<void> DescribeSignal() const {
    signalfd_siginfo info{};
    if (read(signals_.get(), &info, sizeof info) != sizeof info) return {};
    if (static_cast<pid_t>(info.ssi_pid) == getppid()) return {};
    return FailAs(ErrorKind::kSystem, "received signal {} from process {} of user {}",
                  info.ssi_signo, info.ssi_pid, info.ssi_uid);
  }

  Result<void> Receive(int socket, int peer) {
    for (;;) {
      PERSEUS_ASSIGN_OR_RETURN(const auto received, ReceiveMessage(socket));
      if (received.has_ended && peer < 0) {
        is_stopping_ = true;  // Without a parent there is no job.
        return {};
      }
      if (received.has_ended) {
        // The parent decides whether this is an error.
        gone_peers_.insert(peer);
        return {};
      }
      if (!received.message) return {};
      if (auto taken = Take(*received.message); !taken) return taken;
      if (is_stopping_) return {};
    }
  }

  Result<void> Take(const Message& message) {
    switch (message.kind) {
      case MessageKind::kTensor:
        arrived_[{message.step, message.tensor}] = message.time;
        return {};
      case MessageKind::kBeginStep:
      case MessageKind::kStop:
        next_step_ = message;
        return {};
      case MessageKind::kPing: {
        Message pong;
        pong.kind = MessageKind::kPong;
        return SendToParent(pong);
      }
      default:
        return Fail("received a message that is not for ranks (start all from the same program)");
    }
  }

  Result<void> SendToParent(const Message& message) {
    return SendMessage(options_.control, message);
  }

  Result<RealRun> Look(const InFlight& flight) {
    PERSEUS_ASSIGN_OR_RETURN(const auto run, worker_.RunOf(flight.run));
    return RealRun{node_.ToReal(run.begin), node_.ToReal(run.finish)};
  }

  std::optional<Nanoseconds> InputTime(std::size_t index) const {
    const auto& input = WorkOf(index).input;
    if (!input) return 0;
    const auto arrived = arrived_.find({step_, *input});
    if (arrived == arrived_.end()) return std::nullopt;
    return arrived->second;
  }

  const RankInstruction& WorkOf(std::size_t index) const { return options_.work[index]; }
  void WakeAt(Nanoseconds time) { wake_at_ = std::min(wake_at_, time); }

  const virtual_gpu::VirtualNode& node_;
  const RankProcessOptions& options_;
  Clock& clock_;
  std::shared_ptr<void> part_;  // Set if the clock is virtual. Then no process is woken late.
  virtual_gpu::VirtualWorker worker_;
  Session session_;
  FileDescriptor signals_;

  bool is_stopping_ = false;
  // The message kBeginStep or kStop. The end of a step is announced in advance, so this message may
  // arrive before this rank has ended its own step.
  std::optional<Message> next_step_;
  std::int64_t step_ = -1;
  bool is_in_step_ = false;         // From kBeginStep to the end of the last instruction.
  bool has_reported_step_ = false;  // To the client library.
  Nanoseconds step_begin_ = 0;
  std::size_t next_ = 0;            // The first instruction that is not in the GPU's queue yet.
  std::deque<InFlight> in_flight_;  // At most two. The first one runs, or will run first.
  std::map<std::pair<std::int64_t, Tensor>, Nanoseconds> arrived_;  // By step.
  std::set<int> gone_peers_;                                        // They closed their sockets.
  Nanoseconds last_end_ = 0;
  Nanoseconds wake_at_ = Clock::kNever;
  RankStatistics statistics_;
};

// ---- Running a step ----

// ---- Messages and signals ----

}  // namespace

Result<void> RunRankProcess(const virtual_gpu::VirtualNode& node,
                            const RankProcessOptions& options) {
  PERSEUS_ASSIGN_OR_RETURN(auto worker, node.OpenWorker(options.gpu));
  return RankProcess(node, options, std::move(worker)).Run();
}

}  // namespace perseus::trainer
