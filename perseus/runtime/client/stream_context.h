// Finds the CUDA context of a stream, and makes calls in it.
//
// A stream handle belongs to a context. The exceptions are the handles of the legacy stream (0 and
// 1) and of the stream of the thread (2): they mean a stream of the context that is current at the
// call. PyTorch's default stream has the handle 0 on every GPU, and a program may leave cuda:0
// current while it trains on cuda:1. Then a call with the handle 0 would time an idle GPU. So the
// first stream's GPU is compared with that of the session, and its context is used from then on.
// (To take the session's GPU for such a handle was tried: with a wrong PERSEUS_GPU, an idle GPU was
// timed, and its clock was set.)
#pragma once

#include <string>

#include "perseus/base/result.h"
#include "perseus/runtime/cuda/driver.h"

namespace perseus::client {

// Returns the context of the stream. `gpu` is the UUID of the session's GPU; empty, or not in the
// form of CUDA: unknown, so it is not compared. Changes the current context of the thread.
//
// Fails (kSystem) if a call fails, or if the stream is on another GPU. The error has the cause and
// the remedy.
Result<cuda::Context> ContextOf(const cuda::StreamDriver& driver, cuda::Stream stream,
                                const std::string& gpu);

// Returns a warning if ContextOf() cannot know whether the stream is on the session's GPU: the
// handle means a stream of the current context, the session's GPU is unknown, and the process sees
// several GPUs. Empty: no warning.
std::string WhyUnchecked(const cuda::StreamDriver& driver, cuda::Stream stream,
                         const std::string& gpu);

// While it lives, `context` is the current context of the thread.
class InContext {
 public:
  InContext(const cuda::StreamDriver& driver, cuda::Context context) : driver_(driver) {
    result_ = driver_.GetCurrent(&before_);
    if (result_ != cuda::kSuccess || before_ == context) return;
    result_ = driver_.SetCurrent(context);
    is_changed_ = result_ == cuda::kSuccess;
  }
  ~InContext() {
    if (is_changed_) static_cast<void>(driver_.SetCurrent(before_));
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  // kSuccess if the context is current.
  cuda::Code result() const { return result_; }

 private:
  const cuda::StreamDriver& driver_;
  cuda::Context before_ = nullptr;
  cuda::Code result_ = cuda::kSuccess;
  bool is_changed_ = false;
};

}  // namespace perseus::client
