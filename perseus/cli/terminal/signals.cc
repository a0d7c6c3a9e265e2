#include "perseus/cli/terminal/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <ctime>

#include "perseus/base/mutex.h"
#include "perseus/base/system_cause.h"

namespace perseus::cli {
namespace {

constexpr long kPollNanoseconds = 20'000'000;

sigset_t InterruptOnly() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  return signals;
}

}  // namespace

Result<FileDescriptor> TakeSignals(std::span<const int> numbers) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : numbers) sigaddset(&wanted, number);
  FileDescriptor signals;
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) == 0) {
    signals = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (signals) return signals;
  return SystemFail(errno, "cannot wait for signals");
}

Result<EndSignals> EndSignals::Take() {
  // The system sends SIGHUP when the terminal closes.
  constexpr int kEnds[] = {SIGTERM, SIGINT, SIGHUP};
  EndSignals taken;
  PERSEUS_ASSIGN_OR_RETURN(taken.signals_, TakeSignals(kEnds));
  return taken;
}

bool EndSignals::HaveCome() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) have_come_ = true;
  return have_come_;
}

FinishOnInterrupt::FinishOnInterrupt(std::FILE* err) : err_(err) {
  const sigset_t interrupt = InterruptOnly();
  pthread_sigmask(SIG_BLOCK, &interrupt, &before_);
  waiter_ = std::jthread([this](const std::stop_token& ends) { Wait(ends); });
}

FinishOnInterrupt::~FinishOnInterrupt() {
  waiter_.request_stop();
  waiter_.join();
  // A signal that came after the end of the computation ends the process here.
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void FinishOnInterrupt::Wait(const std::stop_token& ends) {
  const sigset_t interrupt = InterruptOnly();
  const timespec poll{0, kPollNanoseconds};
  while (!ends.stop_requested() && sigtimedwait(&interrupt, nullptr, &poll) != SIGINT) {
  }
  if (ends.stop_requested()) return;
  finish_.request_stop();
  std::fputs("perseus: finishing with the best plans so far (press Ctrl-C again to stop at once)\n",
             err_);
  // From here on, this thread receives SIGINT. Its default action ends the process.
  pthread_sigmask(SIG_UNBLOCK, &interrupt, nullptr);
  Mutex alone;
  std::condition_variable_any ended;
  const MutexLock lock(alone);
  ended.wait(alone, ends, [] { return false; });
}

}  // namespace perseus::cli
