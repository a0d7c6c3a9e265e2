#include "perseus/cli/terminal/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "perseus/base/system_cause.h"

namespace perseus::cli {

Result<EndSignals> EndSignals::Take() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGHUP);  // The system sends it when the terminal closes.
  EndSignals taken;
  if (sigprocmask(SIG_BLOCK, &ends, nullptr) == 0) {
    taken.signals_ = FileDescriptor(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (!taken.signals_) {
    return FailAs(ErrorKind::kSystem, "cannot wait for signals: {}", CauseAndRemedy(errno));
  }
  return taken;
}

bool EndSignals::HaveCome() {
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof info) == sizeof info) have_come_ = true;
  return have_come_;
}

}  // namespace perseus::cli
