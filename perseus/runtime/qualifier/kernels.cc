#include "perseus/runtime/qualifier/kernels.h"

namespace perseus::qualifier {
namespace {

constexpr const char* kHeader = R"(.version 6.3
.target sm_70
.address_size 64
)";

// The code from the entry of a kernel to its work. Registers: %rd1 mailbox, %rd2 flag, %rd4 the
// place of a result, %rd6 iterations, %p7 whether this thread notes its iterations, %r1 thread, %r2
// block.
constexpr const char* kPrologue = R"((
  .param .u64 mailbox_parameter, .param .u64 flag_parameter, .param .u64 limit_parameter,
  .param .u64 result_parameter)
{
  .reg .pred %p<10>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<24>;
  .reg .f32 %f<12>;
  .shared .align 16 .b8 sample[16];

  ld.param.u64 %rd1, [mailbox_parameter];
  ld.param.u64 %rd2, [flag_parameter];
  ld.param.u64 %rd3, [limit_parameter];
  ld.param.u64 %rd4, [result_parameter];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd2, %rd2;
  cvta.to.global.u64 %rd4, %rd4;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u64 %rd6, 0;
  setp.eq.u32 %p1, %r2, 0;
  setp.eq.and.u32 %p7, %r1, 32, %p1;
  setp.lt.and.u32 %p2, %r1, 32, %p1;
  @!%p2 bra WORK;
  setp.ne.u32 %p3, %r1, 0;
  @%p3 bra DONE;

  mov.u64 %rd7, 0;
  mov.u64 %rd8, %globaltimer;
  add.u64 %rd9, %rd8, %rd3;
  st.volatile.shared.v2.u64 [sample], {%rd7, %rd7};
CONTROL:
  ld.volatile.shared.v2.u64 {%rd10, %rd11}, [sample];
  add.u64 %rd7, %rd7, 1;
  st.volatile.global.u64 [%rd1+8], %rd7;
  membar.sys;
  st.volatile.global.u64 [%rd1+16], %rd10;
  st.volatile.global.u64 [%rd1+24], %rd11;
  membar.sys;
  add.u64 %rd7, %rd7, 1;
  st.volatile.global.u64 [%rd1+8], %rd7;
  ld.volatile.global.u32 %r3, [%rd1];
  setp.ne.u32 %p4, %r3, 0;
  @%p4 bra STOP;
  mov.u64 %rd8, %globaltimer;
  setp.gt.u64 %p5, %rd8, %rd9;
  @%p5 bra STOP;
  mov.u32 %r4, 10000;
  nanosleep.u32 %r4;
  bra CONTROL;
STOP:
  mov.u32 %r5, 1;
  st.volatile.global.u32 [%rd2], %r5;
  bra DONE;
WORK:
)";

// The code after each iteration.
constexpr const char* kEpilogue = R"(
  add.u64 %rd6, %rd6, 1;
  @!%p7 bra CHECK;
  mov.u64 %rd12, %globaltimer;
  st.volatile.shared.v2.u64 [sample], {%rd12, %rd6};
CHECK:
  ld.volatile.global.u32 %r6, [%rd2];
  setp.eq.u32 %p6, %r6, 0;
  @%p6 bra ITERATION;
DONE:
  ret;
}
)";

// Four independent chains of fused multiply-adds. The result is stored only if it has a value that
// it never has. So the compiler keeps the work.
constexpr const char* kComputeWork = R"(
  cvt.rn.f32.u32 %f1, %r1;
  mov.f32 %f2, 0f3F000000;
  mov.f32 %f3, 0f3E800000;
  mov.f32 %f4, 0f3E000000;
  mov.f32 %f5, 0f3F7FFF00;
  mov.f32 %f6, 0f3A83126F;
ITERATION:
  mov.u32 %r7, 0;
INNER:
  fma.rn.f32 %f1, %f1, %f5, %f6;
  fma.rn.f32 %f2, %f2, %f5, %f6;
  fma.rn.f32 %f3, %f3, %f5, %f6;
  fma.rn.f32 %f4, %f4, %f5, %f6;
  fma.rn.f32 %f1, %f1, %f5, %f6;
  fma.rn.f32 %f2, %f2, %f5, %f6;
  fma.rn.f32 %f3, %f3, %f5, %f6;
  fma.rn.f32 %f4, %f4, %f5, %f6;
  add.u32 %r7, %r7, 1;
  setp.lt.u32 %p8, %r7, 256;
  @%p8 bra INNER;
  add.f32 %f7, %f1, %f2;
  add.f32 %f7, %f7, %f3;
  add.f32 %f7, %f7, %f4;
  setp.lt.f32 %p9, %f7, 0fFF000000;
  @%p9 st.global.f32 [%rd4], %f7;
)";

// One thread of each block spins on the flag, which the epilogue loads. The other threads end.
constexpr const char* kBlockedWork = R"(
  and.b32 %r7, %r1, 31;
  setp.ne.u32 %p8, %r7, 0;
  @%p8 bra DONE;
  setp.ge.u32 %p9, %r1, 64;
  @%p9 bra DONE;
ITERATION:
)";

constexpr const char* kNotify = R"(.visible .entry perseus_notify(
  .param .u64 address_parameter, .param .u64 value_parameter)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [address_parameter];
  ld.param.u64 %rd2, [value_parameter];
  cvta.to.global.u64 %rd1, %rd1;
  membar.sys;
  st.volatile.global.u64 [%rd1], %rd2;
  ret;
}
)";

std::string LoadKernel(const char* name, const char* work) {
  return std::string(".visible .entry ") + name + kPrologue + work + kEpilogue;
}

}  // namespace

std::string KernelText() {
  return kHeader + LoadKernel(kComputeKernel, kComputeWork) +
         LoadKernel(kBlockedKernel, kBlockedWork) + kNotify;
}

}  // namespace perseus::qualifier
