/* The interface for a training process: it marks the begin and the end of each instruction.
 *
 *   perseus_options options = PERSEUS_OPTIONS_INIT;
 *   options.pp_rank = pp_rank;
 *   perseus_session* session = perseus_open(&options);
 *   for (...) {
 *     perseus_step_begin(session);
 *     perseus_instruction_begin_on(session, PERSEUS_FORWARD, microbatch, 0, stream);
 *     forward(...);  // Launches the work on the CUDA stream.
 *     perseus_instruction_end_on(session, stream);
 *     ...
 *     perseus_step_end(session);
 *   }
 *   perseus_close(session);
 *
 * The library sets the clock that the plan has for each instruction, through the agent of the node,
 * and records the times of the instructions. It does not change what training computes.
 *
 * It fails open. If something is wrong (no agent, a plan for another schedule, an evaluation inside
 * a step, a lost connection), training continues at the default clocks, which the GPU had before
 * the lease. (If the agent itself was killed, the GPU keeps the last clock until an agent runs
 * again.) The library gives one warning for each cause (perseus_take_warning, by default on
 * standard error), and continues to count (perseus_read_counters). Every function accepts a null
 * session, and then does nothing.
 *
 * Hot path. step_begin, step_end, instruction_begin and instruction_end allocate nothing, take no
 * lock and make no system call, with one exception: without a stream, a clock change wakes the
 * agent if it sleeps (one write to an eventfd, 0.3 us). With a stream (the _on functions), a host
 * function on the stream does this, in stream order, and events on the stream take the times.
 * Nothing ever waits for the GPU.
 *
 * Threads: one thread at a time may use a session. (Forward may run on one thread and backward on
 * another thread that waits for it.) Another thread may call use_plan meanwhile, but not during or
 * after close. Several sessions may be open, one for each GPU.
 * Fork: in the child, a session is dead: calls do nothing, and the lease of the parent continues.
 *
 * ABI: stable within PERSEUS_ABI. Structs begin with their size, and only grow at the end.
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

/* NOLINTBEGIN(modernize-use-using): this is C. */

typedef struct perseus_session perseus_session;

/* The kinds of instructions. The numbers are part of the ABI. */
enum {
  PERSEUS_FORWARD = 0,
  PERSEUS_BACKWARD = 1,        /* The full backward pass. */
  PERSEUS_BACKWARD_INPUT = 2,  /* dgrad alone. */
  PERSEUS_BACKWARD_WEIGHT = 3, /* wgrad alone. */
  PERSEUS_RECOMPUTE = 4,
  PERSEUS_OPTIMIZER_STEP = 5 /* Microbatch 0, after all others. */
};

/* If a text is NULL, the library reads the environment variable named beside it. If this is unset
 * too, the default holds. The library copies all texts. A relative path is relative to the
 * directory at perseus_open, also if training changes its directory later. */
typedef struct perseus_options {
  size_t size; /* sizeof(perseus_options) */
  /* Which rank this process is. Each number counts from 0. */
  int32_t dp_rank; /* The pipeline. */
  int32_t pp_rank; /* The position along the pipeline: which instructions of the plan it runs. */
  int32_t tp_rank; /* Which of the GPUs that share the work of one pp_rank. */
  /* PERSEUS_GPU: the UUID, or the number among the visible GPUs ("0"). Default: the only GPU. */
  const char* gpu;
  /* PERSEUS_JOB: the name that other users see as the holder of the GPU. Default: "training". */
  const char* job;
  /* PERSEUS_JOB_DIR: where assignments come from, and where steps are recorded. Default: none. */
  const char* job_directory;
  /* PERSEUS_PLAN: a plan file, in force until an assignment says otherwise. Default: none. */
  const char* plan;
  /* PERSEUS_AGENT: the socket of the agent. "off": no agent. "own": starts an agent for this user
   * if none listens and clocks can be set. Default: "/run/perseus/agent.sock". */
  const char* agent;
  /* PERSEUS_DEVICES: what measures energy: "auto", "nvml", "rocm", "virtual:FILE", "off".
   * Default: "auto". */
  const char* devices;
  /* Seconds since 1970. From then on, the rank does not follow `plan`. 0: never. */
  int64_t plan_expires_at;
  /* PERSEUS_QUIET */
  uint32_t flags;
  /* 0 */
  uint32_t reserved;
  /* The pipeline stages that this rank holds, by chunk: "0,7" if chunk 0 is stage 0 and chunk 1 is
   * stage 7. It is recorded, so that the schedule can be read from the record. Default: stage =
   * chunk * (ranks of the pipeline) + pp_rank. */
  const char* stages;
  /* How many ranks the pipeline has. It is recorded. 0: unknown. */
  int32_t pp_ranks;
  /* 0 */
  uint32_t reserved_too;
} perseus_options;

/* Warnings are kept for perseus_take_warning and not written to standard error. */
#define PERSEUS_QUIET 1u

#define PERSEUS_OPTIONS_INIT \
  { sizeof(perseus_options), 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, 0, 0 }

/* Does not fail if something is missing that training can do without: then the session only
 * measures, or does nothing, and a warning says why. Returns NULL only if memory runs out.
 * `options` may be NULL. Takes as long as the agent needs to start and to reply: at most 20 s if it
 * hangs. */
PERSEUS_API perseus_session* perseus_open(const perseus_options* options);

/* Ends the lease, and writes the record. A step without step_end counts as abandoned. Waits at most
 * one second. */
PERSEUS_API void perseus_close(perseus_session* session);

/* A step is one iteration: forward and backward of all its microbatches. Assignments and plans take
 * effect at step_begin. Steps count from 0. If the process has closed a session of the same rank,
 * the next one continues its record, and counts on. A step without step_end ends at the next
 * step_begin.
 */
PERSEUS_API void perseus_step_begin(perseus_session* session);
PERSEUS_API void perseus_step_end(perseus_session* session);

/* Instead of step_end, if training leaves the step before its end, for example because of an error.
 * The step counts as abandoned and is not recorded, and the GPU gets its default clock. The next
 * step has the next number. */
PERSEUS_API void perseus_step_abandon(perseus_session* session);

/* Gives the clock back now: call it between two steps, before code that needs the GPU at its
 * default clock, such as a test of its health or a benchmark. Waits until the agent has set the
 * clock, at most one second, and not for the work on streams. The next step requests its clocks
 * again. Without this call, the GPU gets its default clock if the next step is 0.1 s later than
 * usual. */
PERSEUS_API void perseus_release_clock(perseus_session* session);

/* Call these around each computation, in the order in which the rank runs them. `chunk` is 0 unless
 * the schedule is interleaved. Outside of a step (an evaluation), the GPU has its default clocks.
 * These two time the calling thread. If it only launches work on a GPU, use the _on functions: the
 * first eight instructions of a session look whether the thread has a CUDA context, and then a
 * warning says so. */
PERSEUS_API void perseus_instruction_begin(perseus_session* session, int32_t kind,
                                           int32_t microbatch, int32_t chunk);
PERSEUS_API void perseus_instruction_end(perseus_session* session);

/* The same for work that is launched on a CUDA stream (a CUstream or cudaStream_t) whose context is
 * current. Nothing waits for the work. Use the same stream for both calls of an instruction. The
 * first call of a session takes milliseconds, because it creates events. On a stream that is being
 * captured, the calls do nothing. */
PERSEUS_API void perseus_instruction_begin_on(perseus_session* session, int32_t kind,
                                              int32_t microbatch, int32_t chunk, void* stream);
PERSEUS_API void perseus_instruction_end_on(perseus_session* session, void* stream);

/* Call these within an instruction, around each part in which its GPU waits for other ranks, such
 * as for the weights of a layer. An instruction on a stream waits on this stream. The time between
 * the two calls then does not count as work of the instruction. */
PERSEUS_API void perseus_wait_begin(perseus_session* session);
PERSEUS_API void perseus_wait_end(perseus_session* session);

/* Follows this plan file from the next step on. NULL: no plan. Returns 0, or -1 if the file has no
 * plan for this rank (a warning says why, and the previous plan stays in force). Not for the hot
 * path. */
PERSEUS_API int perseus_use_plan(perseus_session* session, const char* path);

/* Counts since perseus_open. */
typedef struct perseus_counters {
  size_t size;              /* sizeof(perseus_counters); set it before the call. */
  uint64_t steps;           /* Ended. */
  uint64_t steps_off_plan;  /* Ended steps with another order than the plan. */
  uint64_t instructions;    /* Ended. */
  uint64_t clock_requests;  /* Published to the agent. */
  uint64_t clocks_limited;  /* Requests for which power or heat holds the GPU below the clock, or
                               another program has locked its clock. */
  uint64_t clocks_refused;  /* Requests that the driver did not accept. */
  uint64_t agent_losses;    /* Connections lost. */
  uint64_t records_dropped; /* Instructions that are not recorded: the buffer was full. */
  uint64_t stream_failures; /* Calls of the CUDA driver that failed. */
  uint64_t warnings;
  int32_t may_set_clocks;   /* 1 while the session has a lease. */
  int32_t follows_plan;     /* 1 if this step follows a plan. */
  int64_t plan_version;     /* The version of the assignment in force; 0: none. */
  uint64_t steps_abandoned; /* Left before their end. They are not in `steps`. */
  uint64_t changes_skipped; /* Changes to a lower clock that waited for the agent's limit (perseus
                               agent --max-changes). The GPU kept the higher clock meanwhile. */
} perseus_counters;
PERSEUS_API void perseus_read_counters(const perseus_session* session, perseus_counters* counters);

/* What the steps of this rank cost lately: those of the last 30 s, and at least 8. A step counts
 * when its work is done. */
typedef struct perseus_costs {
  size_t size;            /* sizeof(perseus_costs); set it before the call. */
  uint64_t steps;         /* With known times, since perseus_open. */
  uint64_t steps_on_plan; /* Of these, the steps that ran a plan at its clocks. */
  double step_time_s;     /* The median time from step to step. 0: unknown. */
  double power_w;         /* The mean power of the GPU. 0: unknown. */
  double energy_j;        /* Of the GPU, since the session began to measure. 0: unknown. */
} perseus_costs;
/* Reads numbers that the library has. It asks neither the GPU nor the driver. Not for the hot path.
 */
PERSEUS_API void perseus_read_costs(const perseus_session* session, perseus_costs* costs);

/* Copies the oldest warning that was not taken yet, cut to `size` bytes with the final 0. Returns
 * its whole length, or 0 if there is none. */
PERSEUS_API size_t perseus_take_warning(perseus_session* session, char* buffer, size_t size);

/* "0.1.0" */
PERSEUS_API const char* perseus_version(void);

/* NOLINTEND(modernize-use-using) */

#ifdef __cplusplus
}
#endif

#endif /* PERSEUS_H_ */
