#include "perseus/simulation/virtual_gpu/shared_clock.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <new>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "perseus/base/host.h"
#include "perseus/base/system_cause.h"

namespace perseus::virtual_gpu {
namespace {

constexpr char kClockMagic[16] = "perseus-time-02";
constexpr std::size_t kMostSlots = 1024;
// All of these are real time.
constexpr Nanoseconds kRecheckPeriod = 100 * kMillisecond;
// The period while a woken thread has not run yet.
constexpr Nanoseconds kShortRecheckPeriod = 2 * kMillisecond;
constexpr Nanoseconds kLongestYield = 5 * kMillisecond;
// How often a process looks whether all processes sleep. The longer one runs, the more rarely.
constexpr Nanoseconds kShortestWatch = kMillisecond / 5;
constexpr Nanoseconds kLongestWatch = kMillisecond;
// A process holds the mutex for milliseconds, unless it is stopped.
constexpr Nanoseconds kMutexTimeout = 5 * kSecond;

tl::unexpected<Error> CannotMakeClock(const std::filesystem::path& path) {
  return SystemFail(errno, "cannot create the clock of virtual nodes", InFile(path.string()));
}

// Rounds up to a grid, so that periodic threads wake at the same moments, because each jump of the
// time costs real time.
Nanoseconds RoundedUp(Nanoseconds until) {
  constexpr Nanoseconds kGrid = 5 * kMillisecond;
  if (until > Clock::kNever - kGrid) return until;
  return (until + kGrid - 1) / kGrid * kGrid;
}

// Processes with equal namespaces see each other in /proc, and reach each other by sockets.
struct Namespaces {
  ino_t pid = 0;
  ino_t net = 0;
  friend bool operator==(const Namespaces&, const Namespaces&) = default;
};

Namespaces OwnNamespaces() {
  struct stat pid {};
  struct stat net {};
  if (stat("/proc/self/ns/pid", &pid) != 0 || stat("/proc/self/ns/net", &net) != 0) return {};
  return {pid.st_ino, net.st_ino};
}

// A socket address in the abstract namespace, which needs no file.
std::pair<sockaddr_un, socklen_t> AddressOf(pid_t thread) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string name = fmt::format("perseus-clock-{}", thread);
  name.copy(address.sun_path + 1, sizeof address.sun_path - 1);
  return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())};
}

// Waits until one of the two words changes, a thread wakes the waiters of a word, or `until` is
// reached. May also return earlier, so the caller checks both words.
void WaitForEither(const std::atomic<std::uint32_t>& one, std::uint32_t its_value,
                   const std::atomic<std::uint32_t>& other, std::uint32_t others_value,
                   Nanoseconds until) {
  const auto on = [](const std::atomic<std::uint32_t>& word, std::uint32_t value) {
    futex_waitv waiter{};
    waiter.val = value;
    waiter.uaddr = reinterpret_cast<std::uintptr_t>(&word);
    waiter.flags = FUTEX_32;
    return waiter;
  };
  std::array<futex_waitv, 2> waiters{on(one, its_value), on(other, others_value)};
  const timespec deadline{until / kSecond, until % kSecond};
  const auto woken =
      syscall(SYS_futex_waitv, waiters.data(), waiters.size(), 0, &deadline, CLOCK_MONOTONIC);
  if (woken >= 0 || errno != ENOSYS) return;
  // Linux before 5.16 cannot wait for two words. This waits for one and returns soon for the other.
  RealClock().WaitWhile(other, others_value, std::min(until, MonotonicNow() + 5 * kMillisecond));
}

}  // namespace

// ---- The file ----

struct SharedClock::Slot {
  enum State : std::uint32_t { kFree, kRunning, kWaiting };
  // A slot becomes kWaiting only with the mutex held. It may become kRunning without the mutex.
  alignas(64) std::atomic<std::uint32_t> state;
  std::uint32_t generation;  // How many threads have had this slot.
  std::atomic<pid_t> process;
  std::atomic<pid_t> thread;
  // The kernel's start time of the thread, because another thread may get the same number.
  std::uint64_t started;
  Part part;
  // While it waits:
  bool has_socket;
  Nanoseconds until;
  std::atomic<std::uint32_t> beginning;  // See Beginning.
};

struct SharedClock::Layout {
  char magic[16];
  std::uint64_t size;  // The file size. It differs if another build has other structures.
  char boot_id[64];
  Namespaces namespaces;
  Nanoseconds epoch;            // Added to this clock's time, it gives the time since 1970.
  pthread_mutex_t mutex;        // Robust, as the next one.
  pthread_mutex_t watch_mutex;  // Its owner looks whether all processes sleep.
  std::atomic<Nanoseconds> now;
  Nanoseconds moved_at;             // The real time that corresponds to `now`.
  std::atomic<std::uint32_t> used;  // Slots from this one on were never used.
  Slot slots[kMostSlots];
};

class SharedClock::Guard {
 public:
  Guard(pthread_mutex_t& mutex, Nanoseconds timeout) : mutex_(mutex) {
    const Nanoseconds until = MonotonicNow() + timeout;
    const timespec deadline{until / kSecond, until % kSecond};
    error_ = pthread_mutex_clocklock(&mutex_, CLOCK_MONOTONIC, &deadline);
    // The owner died. Each of its stores left the file consistent. A thread that it did not wake
    // checks the time again by itself.
    if (error_ == EOWNERDEAD) error_ = pthread_mutex_consistent(&mutex_);
  }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard() {
    if (error_ == 0) pthread_mutex_unlock(&mutex_);
  }
  // False if the mutex is not held: a process that holds it is stopped.
  explicit operator bool() const { return error_ == 0; }

 private:
  pthread_mutex_t& mutex_;
  int error_;
};

SharedClock::Layout& SharedClock::layout() const { return *static_cast<Layout*>(address_); }

struct SharedClock::Mapping {
  void* address = nullptr;
  bool is_new = false;
};

// Maps the file, which it creates if necessary.
Result<SharedClock::Mapping> SharedClock::Map(const std::filesystem::path& file) {
  const FileDescriptor fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd) return CannotMakeClock(file);
  struct stat status {};
  const bool is_new = fstat(fd.get(), &status) == 0 && status.st_size == 0;
  char magic[sizeof kClockMagic] = {};
  const bool is_clock = pread(fd.get(), magic, sizeof magic, 0) == sizeof magic &&
                        std::memcmp(magic, kClockMagic, sizeof magic) == 0 &&
                        status.st_size == static_cast<off_t>(sizeof(Layout));
  if (!is_new && !is_clock) {
    return Fail(
        InFile(file.string()),
        "is not the clock of virtual nodes, or has another version (remove it, or name another "
        "file)");
  }
  // Reserves the space now. On a full disk, a later store would raise SIGBUS.
  if (const int error = posix_fallocate(fd.get(), 0, sizeof(Layout)); error != 0) {
    errno = error;
    return CannotMakeClock(file);
  }
  void* address = mmap(nullptr, sizeof(Layout), PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return CannotMakeClock(file);
  return Mapping{address, is_new};
}

void SharedClock::Initialize(void* address) {
  std::memset(address, 0, sizeof(Layout));
  auto* layout = new (address) Layout{};
  RealClock real;
  layout->size = sizeof(Layout);
  BootId().value_or("").copy(layout->boot_id, sizeof layout->boot_id - 1);
  layout->namespaces = OwnNamespaces();
  layout->moved_at = real.Now();
  layout->now = layout->moved_at;
  layout->epoch = real.SinceEpoch() - layout->moved_at;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&layout->mutex, &attributes);
  pthread_mutex_init(&layout->watch_mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  // The magic is last. If the process dies before, the file is no valid clock.
  std::memcpy(layout->magic, kClockMagic, sizeof kClockMagic);
}

Result<std::shared_ptr<SharedClock>> SharedClock::Open(const std::filesystem::path& file) {
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  // With this lock, one process at a time looks for the file and creates it.
  const FileDescriptor lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return CannotMakeClock(folder);
  while (flock(lock.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
  FileDescriptor sender(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!sender) return CannotMakeClock(file);
  PERSEUS_ASSIGN_OR_RETURN(const Mapping mapping, Map(file));
  auto clock =
      std::shared_ptr<SharedClock>(new SharedClock(file, mapping.address, std::move(sender)));
  const Layout& layout = clock->layout();
  if (mapping.is_new || BootId().value_or("") != layout.boot_id) Initialize(mapping.address);
  if (layout.namespaces != OwnNamespaces()) {
    return Fail(
        InFile(file.string()),
        "belongs to another container, whose processes are not visible here (run all in one "
        "container, or leave out clock in the description of the virtual node)");
  }
  return clock;
}

SharedClock::SharedClock(std::filesystem::path file, void* address, FileDescriptor sender)
    : file_(std::move(file)), address_(address), sender_(std::move(sender)) {}

SharedClock::~SharedClock() { munmap(address_, sizeof(Layout)); }

Nanoseconds SharedClock::Now() { return layout().now.load(); }
Nanoseconds SharedClock::SinceEpoch() { return Now() + layout().epoch; }

// ---- Slots ----

// Frees the thread's slot when it is destroyed.
class SharedClock::Participation {
 public:
  Participation(std::shared_ptr<SharedClock> clock, Slot& slot)
      : clock_(std::move(clock)), slot_(slot) {}
  Participation(const Participation&) = delete;
  Participation& operator=(const Participation&) = delete;
  ~Participation() {
    // A forked child has a copy of this object, but no slot.
    if (slot_.process == getpid()) clock_->Leave(slot_);
  }

 private:
  std::shared_ptr<SharedClock> clock_;
  Slot& slot_;
};

// Also has the thread that may move the time.
class SharedClock::ProcessParticipation {
 public:
  ProcessParticipation(std::shared_ptr<SharedClock> clock, Slot& slot)
      : process_(getpid()), part_(clock, slot), thread_([this, clock = std::move(clock)] {
          // Only the threads of the training program handle signals.
          sigset_t all;
          sigfillset(&all);
          pthread_sigmask(SIG_SETMASK, &all, nullptr);
          clock->Watch(is_over_);
        }) {}
  ProcessParticipation(const ProcessParticipation&) = delete;
  ProcessParticipation& operator=(const ProcessParticipation&) = delete;
  ~ProcessParticipation() {
    is_over_ = 1;
    WakeAll(is_over_);
    // A forked child does not have the thread.
    if (process_ == getpid()) {
      thread_.join();
    } else {
      thread_.detach();
    }
  }

 private:
  pid_t process_;
  Participation part_;
  std::atomic<std::uint32_t> is_over_ = 0;
  std::thread thread_;
};

std::shared_ptr<void> SharedClock::TakePart(Part part) {
  Slot* slot = nullptr;
  {
    const Guard guard(layout().mutex, kMutexTimeout);
    if (guard) slot = ClaimSlot(part);
  }
  if (slot == nullptr) return nullptr;
  if (part == Part::kProcess) {
    return std::make_shared<ProcessParticipation>(shared_from_this(), *slot);
  }
  return std::make_shared<Participation>(shared_from_this(), *slot);
}

std::shared_ptr<void> SharedClock::HoldMutex() {
  return std::make_shared<Guard>(layout().mutex, kMutexTimeout);
}

// Returns the first slot for which `is_wanted` is true, or null.
template <typename IsWanted>
SharedClock::Slot* SharedClock::FindSlot(IsWanted is_wanted) const {
  Layout& all = layout();
  Slot* const end = all.slots + all.used;
  Slot* const slot = std::find_if(all.slots, end, is_wanted);
  return slot == end ? nullptr : slot;
}

SharedClock::Slot* SharedClock::FindOwnSlot() const {
  return FindSlot([thread = gettid(), process = getpid()](const Slot& slot) {
    // A thread of a process that takes part as a whole waits in a slot of its own.
    return slot.thread == thread && slot.process == process && slot.part != Part::kProcess &&
           slot.state != Slot::kFree;
  });
}

// The slot of this process, if it takes part as a whole.
SharedClock::Slot* SharedClock::FindProcessSlot() const {
  return FindSlot([process = getpid()](const Slot& slot) {
    return slot.process == process && slot.part == Part::kProcess && slot.state != Slot::kFree;
  });
}

// Call it with the mutex held.
SharedClock::Slot* SharedClock::ClaimSlot(Part part) {
  Layout& all = layout();
  for (std::uint32_t i = 0; i < kMostSlots; ++i) {
    Slot& slot = all.slots[i];
    if (slot.state != Slot::kFree) continue;
    ++slot.generation;
    slot.process = getpid();
    slot.thread = gettid();
    slot.started = 0;
    slot.started = Look(slot).started;
    slot.part = part;
    slot.beginning = 0;
    slot.state = Slot::kRunning;
    all.used = std::max<std::uint32_t>(all.used, i + 1);
    return &slot;
  }
  return nullptr;
}

void SharedClock::Leave(Slot& slot) {
  const Guard guard(layout().mutex, kRecheckPeriod);
  slot.state = Slot::kFree;
  // This thread may have been the last one that ran.
  if (guard) TryToMove(nullptr, nullptr, Running::kTrust);
}

// Call it with the mutex held.
ThreadState SharedClock::Look(const Slot& slot) {
  const auto index = static_cast<std::size_t>(&slot - layout().slots);
  if (thread_files_.size() <= index) thread_files_.resize(index + 1);
  auto& [file, generation] = thread_files_[index];
  if (!file || generation != slot.generation) {
    file = OpenThreadState(slot.process, slot.thread);
    generation = slot.generation;
  }
  const ThreadState thread = ReadThreadState(file);
  const bool is_another = slot.started != 0 && thread.started != slot.started;
  return is_another ? ThreadState{} : thread;
}

// ---- Time ----

// Returns another slot that waits although its thread is not asleep, or null. Call it with the
// mutex held.
const SharedClock::Slot* SharedClock::FindAwake(const Slot* own) {
  Layout& all = layout();
  for (std::uint32_t i = 0; i < all.used; ++i) {
    Slot& slot = all.slots[i];
    if (&slot == own || slot.state != Slot::kWaiting || slot.part == Part::kPeriodic) continue;
    const ThreadState thread = Look(slot);
    if (thread.state == 0) slot.state = Slot::kFree;
    if (thread.state != 0 && thread.state != 'S') return &slot;
  }
  return nullptr;
}

// Call it with the mutex held.
SharedClock::Survey SharedClock::LookAtSlots(Running running) {
  Survey survey;
  Layout& all = layout();
  for (std::uint32_t i = 0; i < all.used; ++i) {
    Slot& slot = all.slots[i];
    const std::uint32_t state = slot.state;
    if (state == Slot::kFree) continue;
    if (state == Slot::kRunning && running == Running::kCheck && IsGone(slot)) {
      slot.state = Slot::kFree;
      continue;
    }
    const bool is_process = slot.part == Part::kProcess;
    survey.has_processes = survey.has_processes || is_process;
    survey.is_beginning = survey.is_beginning || (is_process && slot.beginning != 0);
    survey.is_led = survey.is_led || is_process || slot.part == Part::kLeads;
    if (state == Slot::kWaiting) survey.next = std::min(survey.next, slot.until);
    if (state == Slot::kRunning && !is_process) survey.has_running = true;
  }
  return survey;
}

// Moves the time if no thread runs. `own` is the slot of the calling thread if it waits. Returns
// how long the calling thread may sleep. Call it with the mutex held.
Nanoseconds SharedClock::TryToMove(const Slot* own, const Sleep* sleep, Running running) {
  const Nanoseconds give_up = MonotonicNow() + kLongestYield;
  for (;;) {
    const Survey survey = LookAtSlots(running);
    if (survey.has_running || survey.has_processes || survey.next == kNever) return kRecheckPeriod;
    if (!survey.is_led && MonotonicNow() < RealTimeOf(survey.next)) {
      // The thread that waits for that moment moves the time.
      if (own == nullptr || own->until == kNever) return kRecheckPeriod;
      return std::clamp<Nanoseconds>(RealTimeOf(own->until) - MonotonicNow(), 1, kRecheckPeriod);
    }
    const Slot* const awake = FindAwake(own);
    if (awake == nullptr) {
      // A thread that was asleep may have run since then, and may now sleep for another reason. No
      // thread has begun to wait since then, because this needs the mutex.
      if (LookAtSlots(Running::kTrust).has_running) continue;
      if (sleep != nullptr && sleep->has_event()) return 0;
      MoveTo(survey.next, own, survey.is_led);
      return 0;
    }
    while (awake->state == Slot::kWaiting && Look(*awake).state == 'R') {
      if (MonotonicNow() > give_up) return kShortRecheckPeriod;
      sched_yield();
    }
    if (MonotonicNow() > give_up) return kShortRecheckPeriod;
  }
}

// Looks whether all processes that take part as a whole sleep, until `is_over` is not 0.
void SharedClock::Watch(const std::atomic<std::uint32_t>& is_over) {
  RealClock real;
  std::map<pid_t, ProcessState> processes;
  while (is_over == 0) {
    const Guard watch(layout().watch_mutex, kRecheckPeriod);
    for (Nanoseconds period = kShortestWatch; watch && is_over == 0;) {
      real.WaitWhile(is_over, 0, MonotonicNow() + period);
      const Guard guard(layout().mutex, kRecheckPeriod);
      const bool has_moved = guard && MoveIfProcessesSleep(processes);
      period = has_moved ? kShortestWatch : std::min(2 * period, kLongestWatch);
    }
  }
}

// Returns whether the time moved. Call it with the mutex held.
bool SharedClock::MoveIfProcessesSleep(std::map<pid_t, ProcessState>& processes) {
  const Survey survey = LookAtSlots(Running::kTrust);
  if (survey.has_running || survey.next == kNever) return false;
  Layout& all = layout();
  std::map<pid_t, ProcessState> looked_at;
  for (std::uint32_t i = 0; i < all.used; ++i) {
    const Slot& slot = all.slots[i];
    if (slot.state == Slot::kFree || slot.part != Part::kProcess) continue;
    auto known = processes.extract(slot.process);
    if (!known.empty()) looked_at.insert(std::move(known));
    looked_at.try_emplace(slot.process, slot.process);
  }
  processes = std::move(looked_at);
  const auto cpu_time = [&] {
    return std::accumulate(
        processes.begin(), processes.end(), Nanoseconds{0},
        [](Nanoseconds sum, const auto& process) { return sum + process.second.CpuTime(); });
  };
  for (auto& [id, process] : processes) {
    if (process.StillRuns()) return false;
  }
  const Nanoseconds before = cpu_time();
  for (auto& [id, process] : processes) {
    if (!process.Sleeps()) return false;
  }
  // In this order: what wakes a process runs, and no other thread begins to wait meanwhile.
  if (FindAwake(nullptr) != nullptr) return false;
  const Survey after = LookAtSlots(Running::kTrust);
  if (after.has_running || after.is_beginning || cpu_time() != before) return false;
  MoveTo(survey.next, nullptr, true);
  return true;
}

// The real time of a moment if no thread leads. Virtual time then moves as fast as real time.
Nanoseconds SharedClock::RealTimeOf(Nanoseconds time) const {
  return layout().moved_at + (time - layout().now);
}

void SharedClock::MoveTo(Nanoseconds time, const Slot* own, bool is_led) {
  Layout& all = layout();
  const Nanoseconds real = MonotonicNow();
  // At real pace, the clock catches up after a late wake-up. It does not catch up after a period in
  // which no thread waited.
  all.moved_at = is_led ? real : std::max(RealTimeOf(time), real - kRecheckPeriod);
  all.now = time;
  for (std::uint32_t i = 0; i < all.used; ++i) {
    Slot& slot = all.slots[i];
    // If a thread cannot get the mutex in time, it leaves its slot without the mutex. So only a
    // slot that still waits may become running here. If a free slot became running, time would wait
    // forever.
    std::uint32_t waiting = Slot::kWaiting;
    if (slot.state != waiting || slot.until > time) continue;
    if (!slot.state.compare_exchange_strong(waiting, Slot::kRunning)) continue;
    if (&slot != own) Wake(slot);
  }
}

void SharedClock::Wake(const Slot& slot) const {
  if (!slot.has_socket) return WakeAll(slot.state);
  const auto [address, size] = AddressOf(slot.thread);
  // If this fails, the thread is gone.
  static_cast<void>(sendto(sender_.get(), "", 1, MSG_DONTWAIT | MSG_NOSIGNAL,
                           reinterpret_cast<const sockaddr*>(&address), size));
}

// ---- Waiting ----

// Marks that a thread of a process that takes part as a whole begins to wait. It may sleep until it
// has the mutex, but time must not move then.
class SharedClock::Beginning {
 public:
  explicit Beginning(Slot* process) : process_(process) {
    if (process_ != nullptr) ++process_->beginning;
  }
  Beginning(const Beginning&) = delete;
  Beginning& operator=(const Beginning&) = delete;
  ~Beginning() {
    if (process_ != nullptr) --process_->beginning;
  }

 private:
  Slot* process_;
};

void SharedClock::Wait(Nanoseconds until, const Sleep& sleep) {
  Layout& all = layout();
  Slot* own = FindOwnSlot();
  const bool is_guest = own == nullptr;
  const Nanoseconds check_at = MonotonicNow() + kRecheckPeriod;
  Running running = Running::kTrust;
  for (bool is_over = false; !is_over;) {
    Nanoseconds longest = 0;
    {
      const Beginning beginning(own == nullptr ? FindProcessSlot() : nullptr);
      const Guard guard(all.mutex, kRecheckPeriod);
      if (guard && own == nullptr) own = ClaimSlot(Part::kFollows);
      if (!guard || own == nullptr) {
        sleep.sleep(kShortRecheckPeriod);
        // Otherwise, the thread would have two slots when it takes part, and time would wait for
        // the unused slot.
        if (is_guest && own != nullptr) Leave(*own);
        return;
      }
      own->until = own->part == Part::kPeriodic ? RoundedUp(until) : until;
      own->has_socket = sleep.has_socket;
      own->state = Slot::kWaiting;
      longest = all.now >= own->until ? 0 : TryToMove(own, &sleep, running);
    }
    if (own->state == Slot::kWaiting && longest > 0) sleep.sleep(longest);
    own->state = Slot::kRunning;
    is_over = all.now >= own->until || sleep.has_event() || running == Running::kCheck;
    // The thread that should have moved the time may have died.
    if (MonotonicNow() >= check_at) running = Running::kCheck;
  }
  if (is_guest) Leave(*own);
}

void SharedClock::WaitWhile(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                            Nanoseconds until) {
  const auto sleep = [&](Nanoseconds longest) {
    const Slot* const own = FindOwnSlot();
    if (own == nullptr) return RealClock().WaitWhile(word, value, MonotonicNow() + longest);
    WaitForEither(word, value, own->state, Slot::kWaiting, MonotonicNow() + longest);
  };
  Wait(until, {false, [&] { return word != value; }, sleep});
}

// Wakes a thread that polls.
class SharedClock::PollSocket {
 public:
  // Returns -1 if no socket can be opened. Then the thread looks again from time to time.
  int Open() {
    if (socket_ && thread_ == gettid()) return socket_.get();
    thread_ = gettid();
    // In a forked child, this closes the copy of the parent's socket.
    socket_ = FileDescriptor(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto [address, size] = AddressOf(thread_);
    if (socket_) {
      static_cast<void>(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), size));
    }
    return socket_.get();
  }
  void Drain() const {
    char byte = 0;
    while (recv(socket_.get(), &byte, sizeof byte, MSG_DONTWAIT) > 0) {
    }
  }

 private:
  FileDescriptor socket_;
  pid_t thread_ = 0;
};

int SharedClock::Poll(std::span<pollfd> descriptors, Nanoseconds until) {
  thread_local PollSocket socket;
  std::vector<pollfd> all(descriptors.begin(), descriptors.end());
  all.push_back({socket.Open(), POLLIN, 0});
  int ready = 0;
  const auto poll_for = [&](Nanoseconds longest) {
    const timespec timeout{longest / kSecond, longest % kSecond};
    ppoll(all.data(), all.size(), &timeout, nullptr);
    if (all.back().revents != 0) socket.Drain();
    ready = static_cast<int>(std::count_if(all.begin(), all.end() - 1,
                                           [](const pollfd& one) { return one.revents != 0; }));
  };
  const auto has_event = [&] {
    poll_for(0);
    return ready > 0;
  };
  Wait(until, {true, has_event, poll_for});
  // At the time `until`, a descriptor may also be ready.
  if (ready == 0) poll_for(0);
  std::transform(all.begin(), all.end() - 1, descriptors.begin(), descriptors.begin(),
                 [](const pollfd& one, pollfd wanted) {
                   wanted.revents = one.revents;
                   return wanted;
                 });
  return ready;
}

// ---- Job directories ----

Result<void> SetClockOfJob(const std::filesystem::path& job_directory,
                           const std::filesystem::path& clock) {
  const std::filesystem::path link = job_directory / "clock";
  std::error_code error;
  if (clock.empty()) {
    std::filesystem::remove(link, error);
  } else {
    // All ranks may set it at the same time, so it always exists.
    const std::filesystem::path made = fmt::format("{}.{}", link.string(), gettid());
    std::filesystem::remove(made, error);
    if (!error) std::filesystem::create_symlink(std::filesystem::absolute(clock), made, error);
    if (!error) std::filesystem::rename(made, link, error);
  }
  if (!error) return {};
  return SystemFail(error.value(), "cannot link the job's clock", InFile(link.string()));
}

Result<std::shared_ptr<Clock>> OpenClockOfJob(const std::filesystem::path& job_directory) {
  const std::filesystem::path link = job_directory / "clock";
  std::error_code error;
  if (!std::filesystem::exists(link, error)) return std::make_shared<RealClock>();
  // Otherwise, the owner of a link could choose the file that this process writes to or locks.
  struct stat status {};
  if (lstat(link.c_str(), &status) != 0 || (status.st_uid != geteuid() && status.st_uid != 0)) {
    return FailAs(ErrorKind::kSystem, InFile(link.string()),
                  "belongs to user {}, not to this one (remove it)", status.st_uid);
  }
  auto clock = SharedClock::Open(link);
  if (!clock) return Fail(clock);
  return *std::move(clock);
}

}  // namespace perseus::virtual_gpu
