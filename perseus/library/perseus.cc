#include "perseus/runtime/client/perseus.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "perseus/runtime/client/session.h"
#include "perseus/simulation/virtual_gpu/virtual_node.h"

// The C interface. No failure in these functions may reach the training. In particular, these
// functions throw no exception.

struct perseus_session {
  std::unique_ptr<perseus::client::Session> session;
};

namespace {

void WarnOfNoSession(const perseus_options* options, const std::exception& error) {
  const bool has_flags = options != nullptr && options->size >= offsetof(perseus_options, flags) +
                                                                    sizeof(perseus_options::flags);
  if (has_flags && (options->flags & PERSEUS_QUIET) != 0) return;
  std::fprintf(stderr,
               "perseus: no session can be opened (%s); nothing is set or recorded, and training "
               "goes on\n",
               error.what());
}

}  // namespace

extern "C" {

perseus_session* perseus_open(const perseus_options* options) {
  try {
    auto opened = std::make_unique<perseus_session>();
    opened->session = perseus::client::Session::Open(perseus::client::SettingsFrom(options),
                                                     perseus::virtual_gpu::OpenVirtualNode);
    return opened.release();
  } catch (const std::exception& error) {
    WarnOfNoSession(options, error);
    return nullptr;
  }
}

void perseus_close(perseus_session* session) {
  // In a forked child, the session is dead. The child leaves its copy unchanged, because the copy
  // may be half modified.
  if (session == nullptr || session->session->IsDead()) return;
  delete session;
}

void perseus_step_begin(perseus_session* session) {
  if (session != nullptr) session->session->StepBegin();
}

void perseus_step_end(perseus_session* session) {
  if (session != nullptr) session->session->StepEnd();
}

void perseus_step_abandon(perseus_session* session) {
  if (session != nullptr) session->session->StepAbandon();
}

void perseus_release_clock(perseus_session* session) {
  if (session != nullptr) session->session->ReleaseClock();
}

void perseus_instruction_begin(perseus_session* session, int32_t kind, int32_t microbatch,
                               int32_t chunk) {
  if (session != nullptr) session->session->InstructionBegin(kind, microbatch, chunk);
}

void perseus_instruction_end(perseus_session* session) {
  if (session != nullptr) session->session->InstructionEnd();
}

void perseus_instruction_begin_on(perseus_session* session, int32_t kind, int32_t microbatch,
                                  int32_t chunk, void* stream) {
  if (session == nullptr) return;
  try {
    session->session->InstructionBeginOn(kind, microbatch, chunk, stream);
  } catch (const std::exception&) {
    // Memory may run out at the first use of a stream.
  }
}

void perseus_instruction_end_on(perseus_session* session, void* stream) {
  if (session != nullptr) session->session->InstructionEndOn(stream);
}

void perseus_wait_begin(perseus_session* session) {
  if (session != nullptr) session->session->WaitBegin();
}

void perseus_wait_end(perseus_session* session) {
  if (session != nullptr) session->session->WaitEnd();
}

int perseus_use_plan(perseus_session* session, const char* path) {
  if (session == nullptr) return -1;
  try {
    return session->session->UsePlan(path != nullptr ? path : "") ? 0 : -1;
  } catch (const std::exception&) {
    return -1;
  }
}

void perseus_read_counters(const perseus_session* session, perseus_counters* counters) {
  if (counters == nullptr || counters->size < sizeof counters->size) return;
  const std::size_t size = std::min(counters->size, sizeof *counters);
  perseus_counters now{};
  if (session != nullptr) now = session->session->Counters();
  now.size = size;
  std::memcpy(counters, &now, size);
}

void perseus_read_costs(const perseus_session* session, perseus_costs* costs) {
  if (costs == nullptr || costs->size < sizeof costs->size) return;
  const std::size_t size = std::min(costs->size, sizeof *costs);
  perseus_costs now{};
  try {
    if (session != nullptr) now = session->session->Costs();
  } catch (const std::exception&) {
    // Memory may run out.
  }
  now.size = size;
  std::memcpy(costs, &now, size);
}

size_t perseus_take_warning(perseus_session* session, char* buffer, size_t size) {
  if (session == nullptr || session->session->IsDead()) return 0;
  try {
    perseus::client::SessionCore& core = session->session->core();
    core.ReportTroubles();
    const std::string text = core.warnings.TakeOldest();
    if (buffer != nullptr && size > 0) {
      const std::size_t length = std::min(text.size(), size - 1);
      std::memcpy(buffer, text.data(), length);
      buffer[length] = '\0';
    }
    return text.size();
  } catch (const std::exception&) {
    return 0;
  }
}

const char* perseus_version(void) { return PERSEUS_VERSION; }

}  // extern "C"
