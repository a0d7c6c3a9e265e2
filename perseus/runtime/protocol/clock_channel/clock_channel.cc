#include "perseus/runtime/protocol/clock_channel/clock_channel.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "perseus/base/system_cause.h"

namespace perseus::protocol {
namespace {

// A flag of Linux 6.3 that older headers do not have.
constexpr unsigned kNoExecutableSeal = 0x0008;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

constexpr std::size_t BytesFor(int gpu_count) {
  return sizeof(ClockChannelHeader) + static_cast<std::size_t>(gpu_count) * sizeof(ClockSlot);
}

// ---- The words of a slot (clock_channel.h has their layout) ----

struct Word {
  std::uint32_t sequence = 0;
  unsigned turn = 0;
  unsigned outcome = 0;
  int sm_clock_mhz = 0;
};

std::uint64_t Pack(const Word& word) {
  const int mhz = word.sm_clock_mhz < 0 ? kHighestClockMhz : word.sm_clock_mhz;
  return std::uint64_t{word.sequence} << 32 | std::uint64_t{word.turn & 1} << 31 |
         std::uint64_t{word.outcome & 0x7F} << 24 |
         static_cast<std::uint64_t>(std::min(mhz, kHighestClockMhz));
}

Word Unpack(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits >> 32), static_cast<unsigned>(bits >> 31 & 1),
          static_cast<unsigned>(bits >> 24 & 0x7F), static_cast<int>(bits & kHighestClockMhz)};
}

// A word and its time.
struct TimedWord {
  Word word;
  Nanoseconds time = 0;
};

// Reads a word and its time. If the word changes a few times during the read, gives up, because the
// other side may change it on purpose. A wrong time does little harm.
TimedWord LoadTimed(const std::atomic<std::uint64_t>& bits,
                    const std::atomic<std::int64_t>* times) {
  constexpr int kMostTries = 4;
  std::uint64_t seen = bits.load(std::memory_order_seq_cst);
  for (int attempt = 1;; ++attempt) {
    const Word word = Unpack(seen);
    const Nanoseconds time = times[word.turn].load(std::memory_order_acquire);
    const std::uint64_t again = bits.load(std::memory_order_seq_cst);
    if (again == seen || attempt == kMostTries) return {word, time};
    seen = again;
  }
}

// Stores the time first, so that a reader of the word finds its time.
void StoreTimed(std::atomic<std::uint64_t>& bits, std::atomic<std::int64_t>* times,
                const TimedWord& timed) {
  times[timed.word.turn & 1].store(timed.time, std::memory_order_release);
  bits.store(Pack(timed.word), std::memory_order_seq_cst);
}

// ---- The memory ----

// The mapping of a channel in this process.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t size)
      : address_(::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)), size_(size) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, MAP_FAILED)), size_(other.size_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Mapping() {
    if (address_ != MAP_FAILED) ::munmap(address_, size_);
  }

  explicit operator bool() const { return address_ != MAP_FAILED; }
  ClockChannelHeader* header() const { return static_cast<ClockChannelHeader*>(address_); }
  ClockSlot* slots() const { return reinterpret_cast<ClockSlot*>(header() + 1); }

 private:
  void* address_ = MAP_FAILED;
  std::size_t size_ = 0;
};

tl::unexpected<Error> NoMemory() {
  return FailAs(ErrorKind::kSystem,
                "cannot create a channel for clock requests: {} (raise the limit on open files, or "
                "free memory)",
                std::strerror(errno));
}

FileDescriptor MakeSealedMemory(std::size_t size) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  constexpr const char* kName = "perseus-clocks";
  // Some systems require the newer flag, and older systems do not know it.
  FileDescriptor memory(::memfd_create(kName, kFlags | kNoExecutableSeal));
  if (!memory && errno == EINVAL) memory = FileDescriptor(::memfd_create(kName, kFlags));
  if (!memory || ::ftruncate(memory.get(), static_cast<off_t>(size)) != 0 ||
      ::fcntl(memory.get(), F_ADD_SEALS, kSeals) != 0) {
    return {};
  }
  return memory;
}

// Returns an epoll descriptor that becomes readable at every write to `event` (EPOLLET).
FileDescriptor WatchWrites(int event) {
  FileDescriptor watch(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event interest{};
  interest.events = EPOLLIN | EPOLLET;
  if (!watch || ::epoll_ctl(watch.get(), EPOLL_CTL_ADD, event, &interest) != 0) return {};
  return watch;
}

// Returns why a write to `event` could block or raise a signal. Empty if it could not.
std::string_view FaultOf(int event) {
  const int flags = ::fcntl(event, F_GETFL);
  struct stat status {};
  if (flags < 0 || ::fstat(event, &status) != 0) return "it is not open";
  if ((flags & O_ACCMODE) != O_RDWR) return "it is not open for writing";
  if ((flags & O_NONBLOCK) == 0) return "a write to it could block";
  if (S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode)) {
    return "a write to it could raise SIGPIPE";
  }
  return {};
}

Result<void> CheckMemory(int memory, int gpu_count) {
  const int seals = ::fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return Fail("the agent's channel: its memory is not sealed (is that an agent of Perseus?)");
  }
  struct stat status {};
  if (::fstat(memory, &status) != 0 || status.st_size != static_cast<off_t>(BytesFor(gpu_count))) {
    return Fail(
        "the agent's channel: its memory has {} bytes, but {} GPUs need {} (install the same "
        "version of agent and client)",
        status.st_size, gpu_count, BytesFor(gpu_count));
  }
  return {};
}

}  // namespace

// ---- The agent's end ----

struct ClockChannel::Memory {
  struct Gpu {
    FileDescriptor event;
    FileDescriptor watch;
    unsigned turn = 0;  // The turn of the last answer.
  };
  FileDescriptor memory;
  Mapping mapping;
  std::vector<Gpu> gpus;

  ClockSlot& slot(int gpu) const { return mapping.slots()[gpu]; }
};

ClockChannel::ClockChannel(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
ClockChannel::ClockChannel(ClockChannel&&) noexcept = default;
ClockChannel& ClockChannel::operator=(ClockChannel&&) noexcept = default;
ClockChannel::~ClockChannel() = default;

Result<ClockChannel> ClockChannel::Create(int gpu_count) {
  if (gpu_count < 1 || gpu_count > kMostChannelGpus) {
    return Fail("a channel serves 1 to {} GPUs, not {} (request fewer at a time)", kMostChannelGpus,
                gpu_count);
  }
  auto memory = std::make_unique<Memory>();
  memory->memory = MakeSealedMemory(BytesFor(gpu_count));
  if (!memory->memory) return NoMemory();
  memory->mapping = Mapping(memory->memory.get(), BytesFor(gpu_count));
  if (!memory->mapping) return NoMemory();
  for (int gpu = 0; gpu < gpu_count; ++gpu) {
    Memory::Gpu ends;
    ends.event = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!ends.event) return NoMemory();
    ends.watch = WatchWrites(ends.event.get());
    if (!ends.watch) return NoMemory();
    memory->gpus.push_back(std::move(ends));
  }

  auto* header = new (memory->mapping.header()) ClockChannelHeader{};
  header->magic = kClockChannelMagic;
  header->version = kClockChannelVersion;
  header->gpu_count = static_cast<std::uint32_t>(gpu_count);
  for (int gpu = 0; gpu < gpu_count; ++gpu) new (&memory->slot(gpu)) ClockSlot{};
  return ClockChannel(std::move(memory));
}

int ClockChannel::gpu_count() const { return static_cast<int>(memory_->gpus.size()); }

std::vector<int> ClockChannel::descriptors() const {
  std::vector<int> descriptors = {memory_->memory.get()};
  for (const Memory::Gpu& gpu : memory_->gpus) descriptors.push_back(gpu.event.get());
  return descriptors;
}

int ClockChannel::wakeup(int gpu) const {
  return memory_->gpus[static_cast<std::size_t>(gpu)].watch.get();
}

void ClockChannel::DrainWakeups(int gpu) {
  epoll_event ignored{};
  ::epoll_wait(wakeup(gpu), &ignored, 1, 0);
}

ClockRequest ClockChannel::Latest(int gpu) const {
  const ClockSlot& slot = memory_->slot(gpu);
  const TimedWord request = LoadTimed(slot.request, slot.requested_at);
  return {request.word.sequence, request.word.sm_clock_mhz, request.time};
}

void ClockChannel::Announce(int gpu, Sleep sleep) {
  memory_->slot(gpu).agent_sleeps.store(sleep == Sleep::kAboutToSleep ? 1 : 0,
                                        std::memory_order_seq_cst);
}

void ClockChannel::Answer(int gpu, const ClockAnswer& answer) {
  unsigned& turn = memory_->gpus[static_cast<std::size_t>(gpu)].turn;
  ClockSlot& slot = memory_->slot(gpu);
  turn ^= 1;
  StoreTimed(slot.answer, slot.applied_at,
             {{answer.sequence, turn, static_cast<unsigned>(answer.outcome), answer.sm_clock_mhz},
              answer.applied_at});
}

void ClockChannel::SetPostponed(int gpu, std::uint32_t count) {
  memory_->slot(gpu).postponed.store(count, std::memory_order_relaxed);
}

std::uint64_t ClockChannel::heartbeat() const {
  return memory_->mapping.header()->heartbeat.load(std::memory_order_relaxed);
}

// ---- The client's end ----

struct ClockPublisher::Memory {
  // Each Gpu has its own cache line, because different threads may publish for different GPUs.
  struct alignas(64) Gpu {
    FileDescriptor event;
    std::uint32_t sequence = 0;  // The number of the last request.
    unsigned turn = 0;
  };
  Mapping mapping;
  std::vector<Gpu> gpus;

  ClockSlot& slot(int gpu) const { return mapping.slots()[gpu]; }
};

ClockPublisher::ClockPublisher(std::unique_ptr<Memory> memory) : memory_(std::move(memory)) {}
ClockPublisher::ClockPublisher(ClockPublisher&&) noexcept = default;
ClockPublisher& ClockPublisher::operator=(ClockPublisher&&) noexcept = default;
ClockPublisher::~ClockPublisher() = default;

Result<ClockPublisher> ClockPublisher::Attach(std::vector<FileDescriptor> descriptors) {
  if (descriptors.size() < 2 || descriptors.size() > 1 + std::size_t{kMostChannelGpus}) {
    return Fail(
        "the agent's channel: received {} descriptors (expected 1 for the memory and 1 to {} for "
        "GPUs: raise the limit on open files; is that an agent of Perseus?)",
        descriptors.size(), kMostChannelGpus);
  }
  const int gpu_count = static_cast<int>(descriptors.size()) - 1;
  PERSEUS_RETURN_IF_ERROR(CheckMemory(descriptors[0].get(), gpu_count));
  auto memory = std::make_unique<Memory>();
  for (int gpu = 0; gpu < gpu_count; ++gpu) {
    FileDescriptor& event = descriptors[static_cast<std::size_t>(gpu) + 1];
    if (const std::string_view fault = FaultOf(event.get()); !fault.empty()) {
      return Fail("the agent's channel: no eventfd for GPU {}: {} (is that an agent of Perseus?)",
                  gpu, fault);
    }
    memory->gpus.emplace_back().event = std::move(event);
  }
  memory->mapping = Mapping(descriptors[0].get(), BytesFor(gpu_count));
  if (!memory->mapping) {
    return SystemFail(errno, "the agent's channel: cannot map its memory");
  }
  const ClockChannelHeader& header = *memory->mapping.header();
  if (header.magic != kClockChannelMagic) {
    return Fail("the agent's channel: its memory is not an agent's (is that an agent of Perseus?)");
  }
  if (header.version != kClockChannelVersion ||
      header.gpu_count != static_cast<std::uint32_t>(gpu_count)) {
    return Fail(
        "the agent's channel: its layout is version {} for {} GPUs (expected version {} for {}: "
        "install the same version of agent and client)",
        header.version, header.gpu_count, kClockChannelVersion, gpu_count);
  }
  return ClockPublisher(std::move(memory));
}

int ClockPublisher::gpu_count() const { return static_cast<int>(memory_->gpus.size()); }

std::uint32_t ClockPublisher::Publish(int gpu, int sm_clock_mhz, Nanoseconds requested_at) {
  Memory::Gpu& own = memory_->gpus[static_cast<std::size_t>(gpu)];
  ClockSlot& slot = memory_->slot(gpu);
  if (++own.sequence == 0) own.sequence = 1;
  own.turn ^= 1;
  StoreTimed(slot.request, slot.requested_at,
             {{own.sequence, own.turn, 0, sm_clock_mhz}, requested_at});
  Beat();
  if (slot.agent_sleeps.load(std::memory_order_seq_cst) != 0) {
    // The write can fail only after 2^64 unread wake-ups. In this case the agent is being woken
    // anyway.
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(own.event.get(), &one, sizeof one);
  }
  return own.sequence;
}

void ClockPublisher::Beat() {
  memory_->mapping.header()->heartbeat.fetch_add(1, std::memory_order_relaxed);
}

ClockAnswer ClockPublisher::answer(int gpu) const {
  const ClockSlot& slot = memory_->slot(gpu);
  const TimedWord answer = LoadTimed(slot.answer, slot.applied_at);
  const bool is_known = answer.word.outcome <= static_cast<unsigned>(ClockOutcome::kAtPowerLimit);
  return {answer.word.sequence, answer.word.sm_clock_mhz,
          is_known ? static_cast<ClockOutcome>(answer.word.outcome) : ClockOutcome::kNone,
          answer.time};
}

std::uint32_t ClockPublisher::postponed(int gpu) const {
  return memory_->slot(gpu).postponed.load(std::memory_order_relaxed);
}

}  // namespace perseus::protocol
