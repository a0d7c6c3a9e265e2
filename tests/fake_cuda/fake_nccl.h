// A fake NCCL for several GPUs of one process. It moves no data. It checks a requirement of the
// real library: a collective is called for every GPU of its communicators, with the same arguments,
// and inside one group. Where the real library would wait for ever, the fake reports invalid usage.
#pragma once

#include <string_view>

namespace fake_nccl {

inline constexpr int kSystemError = 2;
inline constexpr int kInvalidUsage = 5;

// Forgets calls and failures. Requires that no communicator exists.
void Reset();
// Makes one call of this entry point fail with this code: call number `after`, from 0.
void FailOnce(std::string_view entry_point, int code, int after = 0);
int Calls(std::string_view entry_point);
int LiveCommunicators();

}  // namespace fake_nccl
