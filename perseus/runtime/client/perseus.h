/* What a training process calls: which instruction it begins and ends, and nothing else.
 *
 *   perseus_options options = PERSEUS_OPTIONS_INIT;
 *   options.pp_rank = pp_rank;
 *   perseus_session* session = perseus_open(&options);
 *   for (...) {
 *     perseus_step_begin(session);
 *     perseus_instruction_begin(session, PERSEUS_FORWARD, microbatch, 0);
 *     forward(...);
 *     perseus_instruction_end(session);
 *     ...
 *     perseus_step_end(session);
 *   }
 *   perseus_close(session);
 *
 * The library sets the clock that the plan has for each instruction, through the node's agent, and
 * times what ran. It changes nothing about what is computed.
 *
 * It fails open. Whatever is wrong (no agent, a plan for another schedule, an evaluation step in
 * between, a lost connection), training goes on at the clocks that the GPU had before (where the
 * agent itself was killed: at the one that it set last, until one runs again), with one warning a
 * cause (perseus_take_warning, by default on standard error) and a counter
 * (perseus_read_counters). Every function takes a null session, and then does nothing.
 *
 * Hot path. step_begin, step_end, instruction_begin and instruction_end allocate nothing, take no
 * lock and make no system call, with one exception: without a stream, a change of the clock wakes
 * the agent if it sleeps (one write to an eventfd, 0.3 us). With a stream (the _on functions) that
 * is done by a host function in the order of the stream, and times are taken by its events; nothing
 * ever waits for the GPU.
 *
 * Threads: a session is used by one thread at a time (that forward runs on one thread and backward
 * on another, which waits for it, is fine). Several sessions may be open, one a GPU.
 * Fork: in the child a session is dead; calls do nothing, and the parent's lease goes on.
 *
 * ABI: stable within PERSEUS_ABI; structs begin with their size and only ever grow at the end.
 */
#ifndef PERSEUS_H_
#define PERSEUS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PERSEUS_API __attribute__((visibility("default")))
#else
#define PERSEUS_API
#endif

#define PERSEUS_ABI 1

typedef struct perseus_session perseus_session;

/* What a profile measures; the numbers are the ABI. */
enum {
  PERSEUS_FORWARD = 0,
  PERSEUS_BACKWARD = 1,        /* The full backward pass. */
  PERSEUS_BACKWARD_INPUT = 2,  /* dgrad alone. */
  PERSEUS_BACKWARD_WEIGHT = 3, /* wgrad alone. */
  PERSEUS_RECOMPUTE = 4
};

/* Texts that are NULL are taken from the environment variable named beside them; where that is
 * unset, too, the default holds. All are copied. */
typedef struct perseus_options {
  size_t size; /* sizeof(perseus_options) */
  /* Which rank this process is. Each number counts from 0. */
  int32_t dp_rank; /* The pipeline. */
  int32_t pp_rank; /* The position along the pipeline: which instructions of the plan it runs. */
  int32_t tp_rank; /* Which of the GPUs that share the work of one pp_rank. */
  /* PERSEUS_GPU: UUID, or its number among the visible ones ("0"). The only one. */
  const char* gpu;
  /* PERSEUS_JOB: what others are told holds the GPU. "training" */
  const char* job;
  /* PERSEUS_JOB_DIR: where assignment come from and steps are recorded. None. */
  const char* job_directory;
  /* PERSEUS_PLAN: a plan file, in force until assignment say otherwise. None. */
  const char* plan;
  /* PERSEUS_AGENT: the agent's socket; "off" for none; "own" starts one for this user where none
   * listens and the GPU can be set. "/run/perseus/agent.sock" */
  const char* agent;
  /* PERSEUS_DEVICES: what measures energy: "auto", "nvml", "rocm", "virtual:FILE", "off". "auto" */
  const char* devices;
  /* Seconds since 1970; from then on `plan` is not followed. 0: never. */
  int64_t plan_expires_at;
  /* PERSEUS_QUIET */
  uint32_t flags;
  /* 0 */
  uint32_t reserved;
} perseus_options;

/* Warnings are kept for perseus_take_warning and not written to standard error. */
#define PERSEUS_QUIET 1u

#define PERSEUS_OPTIONS_INIT \
  { sizeof(perseus_options), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0 }

/* Never fails for what training can go on without: the session then measures only, or does nothing,
 * and a warning says why. NULL only where memory ran out. `options` may be NULL. May take as long
 * as the agent takes to be started and to answer: at most 20 s where it hangs. */
PERSEUS_API perseus_session* perseus_open(const perseus_options* options);

/* Gives the GPU back and writes what is recorded. Waits at most a second. */
PERSEUS_API void perseus_close(perseus_session* session);

/* An iteration: forward and backward of all its microbatches. Assignment and plans take effect
 * here. Steps count from 0. A step that was not ended ends at the next step_begin. */
PERSEUS_API void perseus_step_begin(perseus_session* session);
PERSEUS_API void perseus_step_end(perseus_session* session);

/* Around each computation, in the order in which the rank runs them. `chunk` is 0 unless the
 * schedule is interleaved. What runs outside of a step (evaluation) is not touched. */
PERSEUS_API void perseus_instruction_begin(perseus_session* session, int32_t kind,
                                           int32_t microbatch, int32_t chunk);
PERSEUS_API void perseus_instruction_end(perseus_session* session);

/* The same for work that is launched on a CUDA stream (a CUstream, or cudaStream_t), whose context
 * is current: nothing waits for it. Both calls of an instruction on the same stream. The first call
 * of a session takes milliseconds (it makes events). A stream that is being captured is left alone.
 */
PERSEUS_API void perseus_instruction_begin_on(perseus_session* session, int32_t kind,
                                              int32_t microbatch, int32_t chunk, void* stream);
PERSEUS_API void perseus_instruction_end_on(perseus_session* session, void* stream);

/* Follows this plan file from the next step on; NULL for none. 0, or -1 if it is no plan for this
 * rank (a warning says why, and the one before stays in force). Not for the hot path. */
PERSEUS_API int perseus_use_plan(perseus_session* session, const char* path);

/* What happened so far. */
typedef struct perseus_counters {
  size_t size;              /* sizeof(perseus_counters); set it before the call. */
  uint64_t steps;           /* Ended. */
  uint64_t steps_off_plan;  /* Of these: in which the order was not the plan's. */
  uint64_t instructions;    /* Ended. */
  uint64_t clock_requests;  /* Published to the agent. */
  uint64_t clocks_limited;  /* Answered: accepted, but power or heat holds the GPU lower. */
  uint64_t clocks_refused;  /* Answered: not taken. */
  uint64_t agent_losses;    /* Connections lost. */
  uint64_t records_dropped; /* Instructions not recorded, since the buffer was full. */
  uint64_t stream_failures; /* Calls of the CUDA driver that failed. */
  uint64_t warnings;
  int32_t may_set_clocks; /* 1 while a lease holds. */
  int32_t follows_plan;   /* 1 if this step does. */
  int64_t plan_version;   /* Of the assignment in force; 0: none. */
} perseus_counters;
PERSEUS_API void perseus_read_counters(const perseus_session* session, perseus_counters* counters);

/* The oldest warning that was not taken yet, cut to `size` bytes with the final 0; its whole
 * length, or 0 if there is none. */
PERSEUS_API size_t perseus_take_warning(perseus_session* session, char* buffer, size_t size);

/* "0.1.0" */
PERSEUS_API const char* perseus_version(void);

#ifdef __cplusplus
}
#endif

#endif /* PERSEUS_H_ */
