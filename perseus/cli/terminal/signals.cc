#include "perseus/cli/terminal/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "perseus/base/system_cause.h"

namespace perseus::cli {

Result<FileDescriptor> TakeSignals(std::span<const int> numbers) {
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : numbers) sigaddset(&wanted, number);
  FileDescriptor signals;
  if (sigprocmask(SIG_BLOCK, &wanted, nullptr) == 0) {
    signals = FileDescriptor(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (signals) return signals;
  return FailAs(ErrorKind::kSystem, "cannot wait for signals: {}", CauseAndRemedy(errno));
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

}  // namespace perseus::cli
