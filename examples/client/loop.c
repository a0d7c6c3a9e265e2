/* A training loop with Perseus: the calls of each rank of a pipeline, with sleeps in place of the
 * computation. If a GPU computes, use perseus_instruction_begin_on and perseus_instruction_end_on
 * with the CUDA stream of the work. docs/client.md explains it.
 *
 *   cc loop.c -o loop -lperseus
 *   PERSEUS_PLAN=plan.json ./loop 0      # rank 0
 */
#include <perseus.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kSteps = 20, kMicrobatches = 4 };

static void compute(long milliseconds) {
  const struct timespec time = {0, milliseconds * 1000000};
  nanosleep(&time, NULL);
}

int main(int argc, char** argv) {
  perseus_options options = PERSEUS_OPTIONS_INIT;
  options.pp_rank = argc > 1 ? atoi(argv[1]) : 0;
  perseus_session* session = perseus_open(&options);

  for (int step = 0; step < kSteps; ++step) {
    perseus_step_begin(session);
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      perseus_instruction_begin(session, PERSEUS_FORWARD, microbatch, 0);
      compute(2);
      perseus_instruction_end(session);
    }
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      perseus_instruction_begin(session, PERSEUS_BACKWARD, microbatch, 0);
      compute(4);
      perseus_instruction_end(session);
    }
    perseus_step_end(session);
  }

  perseus_counters counters = {0};
  counters.size = sizeof counters;
  perseus_read_counters(session, &counters);
  printf("%llu steps, %llu of them off the plan; %llu clock requests; %llu warnings\n",
         (unsigned long long)counters.steps, (unsigned long long)counters.steps_off_plan,
         (unsigned long long)counters.clock_requests, (unsigned long long)counters.warnings);
  perseus_close(session);
  return 0;
}
