// Tests timing and clocks on CUDA streams. The GPU of the fake driver runs only during Advance().
#include <gmock/gmock.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "perseus/base/clock.h"
#include "perseus/base/units.h"
#include "perseus/runtime/protocol/job_directory/rank_log.h"
#include "tests/client/agent_node.h"
#include "tests/fake_cuda/fake_cuda.h"

extern "C" int cuThreadExchangeStreamCaptureMode(int* mode);

namespace perseus {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr int kOutOfMemory = 2;

class StreamTest : public AgentNodeTest {
 protected:
  StreamTest() {
    ::setenv("PERSEUS_CUDA_LIBRARY", FAKE_CUDA_LIBRARY, 1);
    fake_cuda::Reset();
    stream_ = fake_cuda::MakeStream();
  }
  ~StreamTest() override { ::unsetenv("PERSEUS_CUDA_LIBRARY"); }

  RankSession::Place Place() const {
    return {"off", devices(), Uuid(0), 0, "", (directory_ / "job").string(), 0};
  }
  // Returns a place with a plan: forward at 1410 MHz, and backward at 1005 MHz.
  RankSession::Place PlaceWithPlan(InstructionKind last = InstructionKind::kBackward) const {
    plan_file::PlanFile plan = PlanGpipe(1, 1);
    plan.job.switch_latency = 2 * kMillisecond;
    plan_file::PlannedRank& rank = plan.pp_ranks[0];
    rank.instructions[0].frequency_mhz = 1410;
    rank.instructions[1].frequency_mhz = 1005;
    rank.instructions[1].kind = last;
    rank.instructions[1].duration = 100 * kMillisecond;
    Write("plan.json", plan_file::FormatPlan(plan));
    RankSession::Place place = Place();
    place.socket = socket();
    place.plan = (directory_ / "plan.json").string();
    return place;
  }
  void Run(RankSession& rank, int kind, std::int64_t duration) const {
    perseus_instruction_begin_on(rank.get(), kind, 0, 0, stream_);
    fake_cuda::Launch(stream_, duration);
    perseus_instruction_end_on(rank.get(), stream_);
  }
  void RunStep(RankSession& rank) const {
    perseus_step_begin(rank.get());
    Run(rank, PERSEUS_FORWARD, 50 * kMillisecond);
    Run(rank, PERSEUS_BACKWARD, 100 * kMillisecond);
    perseus_step_end(rank.get());
  }
  std::vector<protocol::RanStep> Steps() const {
    protocol::RankLogReader log(protocol::RankLogPath(directory_ / "job", {0, 0, 0}));
    const auto records = log.ReadNew();
    EXPECT_TRUE(records) << records.error().Message();
    std::vector<protocol::RanStep> steps;
    for (const protocol::RankRecord& record : *records) {
      if (const auto* step = std::get_if<protocol::RanStep>(&record)) steps.push_back(*step);
    }
    return steps;
  }

  void* stream_ = nullptr;
};

TEST_F(StreamTest, TheStreamTimesInstructionsNotTheLaunchingThread) {
  RankSession rank(Place());
  RunStep(rank);
  EXPECT_THAT(Steps(), IsEmpty());
  fake_cuda::Advance(149 * kMillisecond);
  EXPECT_EQ(rank.Counters().steps, 1U);
  fake_cuda::Advance(2 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  const auto steps = Steps();
  ASSERT_THAT(steps[0].instructions, SizeIs(2));
  // Elapsed times are floats in ms. At 150 ms, their resolution is 2^-17 ms (8 ns). A duration is
  // the difference of two elapsed times.
  constexpr double kFloatError = 2 * 8;
  EXPECT_NEAR(static_cast<double>(steps[0].instructions[0].duration), 50e6, kFloatError);
  EXPECT_NEAR(static_cast<double>(steps[0].instructions[1].duration), 100e6, kFloatError);
  EXPECT_NEAR(static_cast<double>(steps[0].instructions[1].begin - steps[0].instructions[0].begin),
              50e6, kFloatError);
  // The step lasts until the GPU has finished its work.
  EXPECT_EQ(steps[0].end - steps[0].begin,
            steps[0].instructions[1].begin + steps[0].instructions[1].duration);
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
}

TEST_F(StreamTest, WaitingWithinAnInstructionIsRecorded) {
  RankSession rank(Place());
  perseus_step_begin(rank.get());
  perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 0, 0, stream_);
  fake_cuda::Launch(stream_, 20 * kMillisecond);
  perseus_wait_begin(rank.get());
  fake_cuda::Launch(stream_, 30 * kMillisecond);
  perseus_wait_end(rank.get());
  perseus_wait_begin(rank.get());  // The stream need not wait.
  perseus_wait_end(rank.get());
  perseus_wait_begin(rank.get());  // Ends with its instruction, and does not count.
  perseus_instruction_end_on(rank.get(), stream_);
  perseus_wait_end(rank.get());
  perseus_wait_begin(rank.get());  // Not within an instruction.
  perseus_wait_end(rank.get());
  perseus_step_end(rank.get());
  fake_cuda::Advance(60 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  const auto steps = Steps();
  ASSERT_THAT(steps[0].instructions, SizeIs(1));
  ASSERT_THAT(steps[0].waits, SizeIs(1));
  constexpr double kFloatError = 2 * 8;  // As above.
  EXPECT_NEAR(static_cast<double>(steps[0].instructions[0].duration), 50e6, kFloatError);
  EXPECT_NEAR(static_cast<double>(steps[0].waits[0].begin), 20e6, kFloatError);
  EXPECT_NEAR(static_cast<double>(steps[0].waits[0].duration), 30e6, kFloatError);
  EXPECT_EQ(rank.Counters().records_dropped, 0U);
}

TEST_F(StreamTest, AStepBeginsWhenTheGpuBeginsIt) {
  RankSession rank(Place());
  // The training thread launches two steps ahead of the GPU.
  const Nanoseconds before = MonotonicNow();
  RunStep(rank);
  RunStep(rank);
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 3; }));
  const auto steps = Steps();
  EXPECT_GE(steps[0].begin, before);
  EXPECT_LE(steps[0].begin, MonotonicNow());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].instructions[0].begin, 0);
    EXPECT_NEAR(static_cast<double>(steps[i].instructions[1].begin), 50e6, 100);
    EXPECT_NEAR(static_cast<double>(steps[i].begin - steps[0].begin),
                static_cast<double>(i) * 150e6, 100);
  }
}

TEST_F(StreamTest, AnInstructionWithoutAStreamStaysWhereItWas) {
  RankSession rank(Place());
  perseus_step_begin(rank.get());
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  const Nanoseconds before = MonotonicNow();
  rank.Run(PERSEUS_BACKWARD, 0);
  const Nanoseconds after = MonotonicNow();
  perseus_step_end(rank.get());
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  const auto step = Steps()[0];
  EXPECT_GE(step.begin + step.instructions[1].begin, before);
  EXPECT_LE(step.begin + step.instructions[1].begin, after);
}

TEST_F(StreamTest, ClocksChangeInTheOrderOfTheStream) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  // The first step begins before the library knows any stream. So the library requests the step's
  // first clock at once.
  RunStep(rank);
  EXPECT_TRUE(LockBecomes(0, 1410));
  EXPECT_EQ(rank.Counters().clock_requests, 1U);
  fake_cuda::Advance(49 * kMillisecond);
  EXPECT_EQ(rank.Counters().clock_requests, 1U);
  fake_cuda::Advance(2 * kMillisecond);  // The forward has ended.
  EXPECT_TRUE(LockBecomes(0, 1005));
  EXPECT_EQ(rank.Counters().clock_requests, 2U);
  RunStep(rank);  // The clock requests of this step wait for the stream.
  EXPECT_EQ(rank.Counters().clock_requests, 2U);
  fake_cuda::Advance(100 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1410));
  fake_cuda::Advance(50 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 2; }));
  EXPECT_EQ(Steps()[1].instructions[0].frequency_mhz, 1410);
  EXPECT_EQ(Steps()[1].instructions[1].frequency_mhz, 1005);
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
}

// The optimizer usually takes 100 ms. The GPU of the fake driver never ends its second step.
TEST_F(StreamTest, TheClockReturnsBeforeTheOptimizerHasEnded) {
  StartAgent();
  RankSession rank(PlaceWithPlan(InstructionKind::kOptimizerStep));
  const auto run_step = [&] {
    perseus_step_begin(rank.get());
    Run(rank, PERSEUS_FORWARD, 50 * kMillisecond);
    Run(rank, PERSEUS_OPTIMIZER_STEP, 100 * kMillisecond);
    perseus_step_end(rank.get());
  };
  run_step();
  fake_cuda::Advance(200 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1410));
  run_step();
  fake_cuda::Advance(51 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  EXPECT_TRUE(LockBecomes(0, 1410));
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
}

TEST_F(StreamTest, WithoutAStreamTheClockReturnsAtThePlannedTime) {
  StartAgent();
  RankSession rank(PlaceWithPlan(InstructionKind::kOptimizerStep));
  for (int step = 0; step < 3; ++step) {
    perseus_step_begin(rank.get());
    rank.Begin(PERSEUS_FORWARD, 0);
    rank.End();
    EXPECT_TRUE(LockBecomes(0, 1005));
    rank.Begin(PERSEUS_OPTIMIZER_STEP, 0);
    EXPECT_TRUE(LockBecomes(0, 1410)) << "it has not ended";
    rank.End();
    perseus_step_end(rank.get());
  }
  EXPECT_EQ(rank.Counters().clock_requests, 1U + 3 * 2);
}

// The fake driver ends the test if a call waits for the GPU or stops a stream.
TEST_F(StreamTest, ClockChangesEnqueueNothing) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  for (int i = 0; i < 10; ++i) {
    RunStep(rank);
    fake_cuda::Advance(200 * kMillisecond);
  }
  EXPECT_TRUE(Comes([&] { return rank.Counters().clock_requests == 20; }));
  // Each step has two instructions with two events each. There is at most one base event a second.
  EXPECT_GE(fake_cuda::Calls("cuEventRecord"), 40);
  EXPECT_LE(fake_cuda::Calls("cuEventRecord"), 50);
}

// If there is no step for a second, the GPU gets its default clock. A step lasts until the GPU has
// ended it, even if the training thread ended it long before.
TEST_F(StreamTest, AStreamThatIsSecondsBehindKeepsItsClock) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(51 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  EXPECT_EQ(Lock(0), 1005);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(StreamTest, ThousandsOfStepsReuseTheEvents) {
  RankSession rank(Place());
  constexpr std::size_t kSteps = 1000;  // This uses 2,000 of 4,096 pairs at a time.
  for (std::size_t round = 1; round <= 5; ++round) {
    for (std::size_t i = 0; i < kSteps; ++i) RunStep(rank);
    fake_cuda::Advance(static_cast<std::int64_t>(kSteps) * 200 * kMillisecond);
    ASSERT_TRUE(Comes([&] { return Steps().size() == round * kSteps; }));
  }
  EXPECT_EQ(rank.Counters().records_dropped, 0U);
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
  // No event is created after the first use.
  EXPECT_LT(fake_cuda::Calls("cuEventCreate"), 10'000);
}

TEST_F(StreamTest, InstructionsBeyondTheEventsAreDropped) {
  RankSession rank(Place());
  for (int i = 0; i < 2100; ++i)
    RunStep(rank);  // 4,200 instructions need more than the 4,096 pairs of events.
  EXPECT_EQ(rank.Counters().records_dropped, 104U);
  EXPECT_EQ(rank.Counters().instructions, 4200U);
  EXPECT_THAT(rank.Warnings(), HasSubstr("launched ahead of the GPU"));
  fake_cuda::Advance(4200 * 100 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 2048; }));
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return Steps().size() == 2049; }));
}

TEST_F(StreamTest, AfterAFailedCallTheSessionNeitherTimesNorSetsClocks) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  // The step was launched, but has not run yet. So the failure comes before the clocks of the step.
  RunStep(rank);
  fake_cuda::FailFrom("cuEventRecord", kOutOfMemory);
  RunStep(rank);
  const int calls = fake_cuda::Calls("cuEventRecord");
  for (int i = 0; i < 3; ++i) RunStep(rank);
  EXPECT_EQ(fake_cuda::Calls("cuEventRecord"), calls);
  EXPECT_EQ(rank.Counters().stream_failures, 1U);
  EXPECT_EQ(rank.Warnings(),
            "the CUDA driver's cuEventRecord failed with 2; instructions on streams are no longer "
            "timed, and the default clocks are used for them\n");
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  fake_cuda::Advance(1000 * kMillisecond);
  const auto requests = rank.Counters().clock_requests;
  for (int i = 0; i < 3; ++i) RunStep(rank);
  EXPECT_EQ(rank.Counters().clock_requests, requests);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  rank.Close();
  EXPECT_THAT(Steps(), SizeIs(1));  // The times of the launching thread are not recorded.
}

TEST_F(StreamTest, EveryCallMayFail) {
  for (const char* call : {"cuEventCreate", "cuEventRecord", "cuEventQuery", "cuEventElapsedTime",
                           "cuCtxGetCurrent", "cuCtxSetCurrent", "cuStreamGetCtx",
                           "cuStreamIsCapturing", "cuThreadExchangeStreamCaptureMode"}) {
    fake_cuda::Reset();
    stream_ = fake_cuda::MakeStream();
    fake_cuda::FailFrom(call, kOutOfMemory);
    RankSession rank(Place());
    RunStep(rank);
    fake_cuda::Advance(1000 * kMillisecond);
    EXPECT_TRUE(Comes([&] { return rank.Counters().stream_failures == 1; })) << call;
    for (int i = 0; i < 3; ++i) RunStep(rank);
    EXPECT_THAT(rank.Warnings(), HasSubstr(call));
    EXPECT_EQ(rank.Counters().steps, 4U);
    EXPECT_EQ(rank.Counters().instructions, 8U);
    rank.Close();
    EXPECT_THAT(Steps(), IsEmpty()) << call;
  }
}

TEST_F(StreamTest, WithoutADriverNothingIsTimedOrSet) {
  ::setenv("PERSEUS_CUDA_LIBRARY", "/no/such/libcuda.so.1", 1);
  StartAgent();
  RankSession rank(PlaceWithPlan());
  for (int i = 0; i < 3; ++i) RunStep(rank);
  EXPECT_EQ(rank.Counters().stream_failures, 1U);
  EXPECT_THAT(rank.Warnings(), HasSubstr("no CUDA driver"));
  // The first step began before the library knew any stream.
  EXPECT_LE(rank.Counters().clock_requests, 2U);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  rank.Close();
  EXPECT_THAT(Steps(), IsEmpty());
}

TEST_F(StreamTest, InstructionsWithoutAStreamAreOneWarningIfTheThreadHasACudaContext) {
  RankSession rank(Place());
  const auto run_step = [&] {
    perseus_step_begin(rank.get());
    for (int i = 0; i < 3; ++i) {
      perseus_instruction_begin(rank.get(), PERSEUS_FORWARD, i, 0);
      perseus_instruction_end(rank.get());
    }
    perseus_step_end(rank.get());
  };
  for (int i = 0; i < 3; ++i) run_step();
  EXPECT_TRUE(Comes([&] { return rank.Counters().warnings == 1; }));
  EXPECT_THAT(rank.Warnings(), HasSubstr("instructions have no stream, but this process computes "
                                         "on a GPU with CUDA"));
  EXPECT_EQ(fake_cuda::Calls("cuCtxGetCurrent"), 1);
  EXPECT_EQ(rank.Counters().steps, 3U);
}

TEST_F(StreamTest, AThreadWithoutACudaContextNeedsNoStream) {
  std::thread([&] {  // A thread has no context until it uses a stream.
    RankSession rank(Place());
    perseus_step_begin(rank.get());
    for (int i = 0; i < 100; ++i) {
      perseus_instruction_begin(rank.get(), PERSEUS_FORWARD, i, 0);
      perseus_instruction_end(rank.get());
    }
    perseus_step_end(rank.get());
    rank.Close();
    EXPECT_THAT(rank.Warnings(), IsEmpty());
  })
      .join();
  EXPECT_EQ(fake_cuda::Calls("cuCtxGetCurrent"), 8);
}

TEST_F(StreamTest, NothingIsEnqueuedOnAStreamThatIsCaptured) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  fake_cuda::SetCapturing(stream_, true);
  const int records = fake_cuda::Calls("cuEventRecord");
  RunStep(rank);
  RunStep(rank);
  EXPECT_EQ(fake_cuda::Calls("cuEventRecord"), records);
  fake_cuda::SetCapturing(stream_, false);
  RunStep(rank);
  EXPECT_GT(fake_cuda::Calls("cuEventRecord"), records);
  EXPECT_THAT(rank.Warnings(), HasSubstr("being captured"));
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
}

TEST_F(StreamTest, EventQueriesDoNotBreakACapture) {
  void* const graph = fake_cuda::MakeStream();
  fake_cuda::SetCapturing(graph, true);
  {
    RankSession rank(Place());
    for (int i = 0; i < 3; ++i) RunStep(rank);
    const int queries = fake_cuda::Calls("cuEventQuery");
    ASSERT_TRUE(Comes([&] { return fake_cuda::Calls("cuEventQuery") > queries; }));
    fake_cuda::Advance(1000 * kMillisecond);
    EXPECT_TRUE(Comes([&] { return Steps().size() == 3; }));
    EXPECT_EQ(rank.Counters().stream_failures, 0U);
  }
  EXPECT_EQ(fake_cuda::LiveEvents(), 0);
  EXPECT_FALSE(fake_cuda::IsCaptureBroken(graph));
  // The capture mode of the training thread is unchanged.
  int mode = 1;
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), 0);
  EXPECT_EQ(mode, 0);
  ASSERT_EQ(cuThreadExchangeStreamCaptureMode(&mode), 0);
}

TEST_F(StreamTest, TheLegacyStreamIsNotUsedDuringACapture) {
  stream_ = nullptr;
  void* const graph = fake_cuda::MakeStream();
  RankSession rank(Place());
  RunStep(rank);
  fake_cuda::SetCapturing(graph, true);
  RunStep(rank);
  fake_cuda::SetCapturing(graph, false);
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return Steps().size() == 2; }));
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
  EXPECT_THAT(rank.Warnings(), HasSubstr("being captured"));
}

TEST_F(StreamTest, NothingIsEnqueuedIfACaptureBeginsWithinAnInstruction) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  perseus_step_begin(rank.get());
  perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 0, 0, stream_);
  const int records = fake_cuda::Calls("cuEventRecord");
  fake_cuda::SetCapturing(stream_, true);
  perseus_instruction_end_on(rank.get(), stream_);
  EXPECT_EQ(fake_cuda::Calls("cuEventRecord"), records);
  fake_cuda::SetCapturing(stream_, false);
  perseus_step_end(rank.get());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return Steps().size() == 2; }));  // The captured step is not recorded.
}

TEST_F(StreamTest, PendingRequestsOfALostLeaseDoNotReachTheNextLease) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  RunStep(rank);  // The clock requests of this step are pending.
  KillAgent();
  ASSERT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 0; }));
  StartAgent();
  ASSERT_TRUE(Comes([&] { return rank.Counters().may_set_clocks == 1; }));
  // An evaluation has no clock in the plan.
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  // The requests are two for the first step, two for the second step, and one for the default
  // clocks.
  EXPECT_TRUE(Comes([&] { return rank.Counters().clock_requests == 5; }));
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(StreamTest, AnUnloadedDriverAtTheEndIsNotAFailure) {
  constexpr int kDeinitialized = 4;
  RankSession rank(Place());
  fake_cuda::FailFrom("cuEventQuery", kDeinitialized);
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return fake_cuda::Calls("cuEventQuery") >= 2; }));
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
}

// ---- Clocks that no stream sets ----

// The GPU keeps the last clock of the plan only as long as steps have instructions.
TEST_F(StreamTest, StepsWithoutInstructionsRunAtTheDefaultClock) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  fake_cuda::SetCapturing(stream_, true);
  RunStep(rank);
  fake_cuda::SetCapturing(stream_, false);
  perseus_step_begin(rank.get());
  perseus_step_end(rank.get());
  perseus_step_begin(rank.get());  // The launch of the graph.
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(StreamTest, AnAbandonedStepEndsAtTheDefaultClock) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  perseus_step_begin(rank.get());
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  perseus_step_abandon(rank.get());
  perseus_step_begin(rank.get());
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  // The request behind the forward is dropped.
  const auto requests = rank.Counters().clock_requests;
  fake_cuda::Advance(1000 * kMillisecond);
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return rank.Counters().clock_requests == requests + 2; }));
  EXPECT_TRUE(LockBecomes(0, 1005));
}

TEST_F(StreamTest, AnEvaluationWithoutAStreamDoesNotHideTheNextClock) {
  StartAgent();
  plan_file::PlanFile plan = PlanGpipe(1, 1);
  for (auto& instruction : plan.pp_ranks[0].instructions) instruction.frequency_mhz = 1005;
  Write("plan.json", plan_file::FormatPlan(plan));
  RankSession::Place place = PlaceWithPlan();
  Write("plan.json", plan_file::FormatPlan(plan));
  RankSession rank(place);
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  rank.Run(PERSEUS_FORWARD, 0);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
}

TEST_F(StreamTest, AStepOfMoreInstructionsThanEventsIsFollowedAndRecorded) {
  StartAgent();
  constexpr int kMicrobatches = 4200;  // 4,096 pairs of events exist.
  plan_file::PlanFile plan = PlanGpipe(1, kMicrobatches);
  for (std::size_t i = 0; i < plan.pp_ranks[0].instructions.size(); ++i) {
    plan.pp_ranks[0].instructions[i].frequency_mhz = i < kMicrobatches ? 1005 : 1410;
  }
  RankSession::Place place = PlaceWithPlan();
  Write("plan.json", plan_file::FormatPlan(plan));
  RankSession rank(place);
  perseus_step_begin(rank.get());
  for (int i = 0; i < 2 * kMicrobatches; ++i) {
    const int kind = i < kMicrobatches ? PERSEUS_FORWARD : PERSEUS_BACKWARD;
    perseus_instruction_begin_on(rank.get(), kind, i % kMicrobatches, 0, stream_);
    fake_cuda::Launch(stream_, kMillisecond);
    perseus_instruction_end_on(rank.get(), stream_);
    fake_cuda::Advance(kMillisecond);
    // The GPU is never behind. The background thread asks for two times of each instruction, and
    // gives the pair back.
    if (i % 1024 == 1023) {
      ASSERT_TRUE(Comes([&] { return fake_cuda::Calls("cuEventElapsedTime") >= 2 * (i + 1); }));
    }
  }
  perseus_step_end(rank.get());
  EXPECT_TRUE(LockBecomes(0, 1410));
  EXPECT_TRUE(Comes([&] { return Steps().size() == 1; }));
  EXPECT_EQ(rank.Counters().records_dropped, 0U);
}

TEST_F(StreamTest, WithoutAFreePairTheDefaultClockIsRequested) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  for (int i = 0; i < 2100; ++i) RunStep(rank);  // 4,200 instructions, but 4,096 pairs.
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

// ---- Times that come late ----

// The thread that follows the stream looks at one event at a time. So it looks at the base behind a
// clock change only after it has seen the change.
TEST_F(StreamTest, ABaseBehindAClockChangeHasItsTime) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  perseus_step_begin(rank.get());
  Run(rank, PERSEUS_FORWARD, 50 * kMillisecond);
  // The GPU is behind. After a second without a known base, the backward takes a new one.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  Run(rank, PERSEUS_BACKWARD, 100 * kMillisecond);
  perseus_step_end(rank.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Nanoseconds before = MonotonicNow();
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  const auto step = Steps()[0];
  // The middle of the time since the base was enqueued would be 250 ms too early.
  EXPECT_GT(step.begin + step.instructions[1].begin, before - 100 * kMillisecond);
}

TEST_F(StreamTest, StepsThatTheGpuHasNotFinishedAtTheEndAreCounted) {
  RankSession::Place place = Place();
  place.flags = 0;
  testing::internal::CaptureStderr();
  RankSession rank(place);
  for (int i = 0; i < 3; ++i) RunStep(rank);
  fake_cuda::Advance(160 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return Steps().size() == 1; }));
  perseus_step_begin(rank.get());  // The close abandons this step.
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  rank.Close();
  EXPECT_THAT(Steps(), SizeIs(1));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the record lacks 2 steps"));
}

TEST_F(StreamTest, AnInstructionMayEndOnAnotherStream) {
  StartAgent();
  plan_file::PlanFile plan = PlanGpipe(1, 2);
  const int clocks_mhz[] = {1410, 1005, 1200, 1005};
  for (std::size_t i = 0; i < 4; ++i) {
    plan.pp_ranks[0].instructions[i].frequency_mhz = clocks_mhz[i];
  }
  const RankSession::Place place = PlaceWithPlan();
  Write("plan.json", plan_file::FormatPlan(plan));
  RankSession rank(place);
  void* const other = fake_cuda::MakeStream();
  perseus_step_begin(rank.get());
  Run(rank, PERSEUS_FORWARD, 0);
  fake_cuda::Launch(stream_, 10 * kMillisecond);
  perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 1, 0, stream_);
  perseus_instruction_end_on(rank.get(), other);  // The GPU passes the end first.
  fake_cuda::Advance(kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1200));
  for (int i = 0; i < 2; ++i) {
    perseus_instruction_begin_on(rank.get(), PERSEUS_BACKWARD, i, 0, stream_);
    perseus_instruction_end_on(rank.get(), stream_);
  }
  perseus_step_end(rank.get());
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(Comes([&] { return Steps().size() == 1; }));
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
}

// ---- Calls that do not match ----

TEST_F(StreamTest, AnEndAfterItsStepCostsNothingLater) {
  RankSession rank(Place());
  perseus_step_begin(rank.get());
  perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 0, 0, stream_);
  perseus_step_end(rank.get());
  perseus_instruction_end_on(rank.get(), stream_);
  // Use all pairs of events more than once.
  constexpr std::size_t kSteps = 1000;
  for (std::size_t round = 1; round <= 3; ++round) {
    for (std::size_t i = 0; i < kSteps; ++i) RunStep(rank);
    fake_cuda::Advance(static_cast<std::int64_t>(kSteps) * 200 * kMillisecond);
    ASSERT_TRUE(Comes([&] { return Steps().size() == 1 + round * kSteps; })) << Steps().size();
  }
  EXPECT_THAT(rank.Warnings(), IsEmpty());
}

TEST_F(StreamTest, MissingEndsCostNothingLater) {
  RankSession rank(Place());
  for (int i = 0; i < 5000; ++i) {
    perseus_step_begin(rank.get());
    perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 0, 0, stream_);
    perseus_instruction_begin_on(rank.get(), PERSEUS_BACKWARD, 0, 0, stream_);
    perseus_instruction_begin(rank.get(), PERSEUS_BACKWARD, 1, 0);
    perseus_instruction_end(rank.get());
    perseus_step_end(rank.get());
  }
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; })) << Steps().size();
  EXPECT_NEAR(static_cast<double>(Steps()[0].instructions[0].duration), 50e6, 16);
  EXPECT_THAT(rank.Warnings(), HasSubstr("instructions have no stream"));
  EXPECT_EQ(rank.Counters().warnings, 1U);
}

TEST_F(StreamTest, AnEndWithoutABeginChangesNoEarlierInstruction) {
  RankSession rank(Place());
  perseus_step_begin(rank.get());
  Run(rank, PERSEUS_FORWARD, kMillisecond);
  perseus_instruction_begin_on(rank.get(), 17, 0, 0, stream_);  // This kind does not exist.
  fake_cuda::Launch(stream_, 57 * kMillisecond);
  perseus_instruction_end_on(rank.get(), stream_);
  perseus_instruction_end(rank.get());
  perseus_step_end(rank.get());
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  ASSERT_THAT(Steps()[0].instructions, SizeIs(1));
  EXPECT_NEAR(static_cast<double>(Steps()[0].instructions[0].duration), 1e6, 16);
}

TEST_F(StreamTest, ClosingDestroysTheEvents) {
  {
    RankSession rank(Place());
    RunStep(rank);
    fake_cuda::Advance(1000 * kMillisecond);
    EXPECT_GT(fake_cuda::LiveEvents(), 0);
  }
  EXPECT_EQ(fake_cuda::LiveEvents(), 0);
}

TEST_F(StreamTest, WorkThatEndsAfterTheCloseSetsNoClock) {
  StartAgent();
  {
    RankSession rank(PlaceWithPlan());
    RunStep(rank);
  }
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
  fake_cuda::Advance(1000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, std::nullopt));
}

TEST_F(StreamTest, TheGpuRunsWhileTrainingLaunches) {
  StartAgent();
  RankSession rank(PlaceWithPlan());
  RunStep(rank);
  std::thread gpu([] { fake_cuda::Advance(1000 * kMillisecond); });
  for (int i = 0; i < 20; ++i) RunStep(rank);
  gpu.join();
  fake_cuda::Advance(100'000 * kMillisecond);
  EXPECT_TRUE(LockBecomes(0, 1005));
  EXPECT_EQ(rank.Counters().steps_off_plan, 0U);
}

// ---- Several GPUs ----

class TwoGpuTest : public StreamTest {
 protected:
  static constexpr const char* kOther = "GPU-01020304-0506-0708-090a-0b0c0d0e0f10";

  // The session is for the second GPU, but the first GPU is current. The legacy stream has the
  // handle 0 on each of the two GPUs.
  TwoGpuTest() {
    fake_cuda::AddGpu(kOther);
    stream_ = nullptr;
  }
  RankSession::Place PlaceOnOther() const {
    RankSession::Place place = Place();
    place.devices = "off";
    place.gpu = kOther;
    return place;
  }
  // Runs an instruction as an operation of a framework does: on the second GPU. The current GPU
  // before and after the operation may be any GPU.
  static void RunOnOther(RankSession& rank, std::int64_t duration) {
    perseus_step_begin(rank.get());
    perseus_instruction_begin_on(rank.get(), PERSEUS_FORWARD, 0, 0, nullptr);
    fake_cuda::SetCurrentGpu(1);
    fake_cuda::Launch(nullptr, duration);
    fake_cuda::SetCurrentGpu(0);
    perseus_instruction_end_on(rank.get(), nullptr);
    perseus_step_end(rank.get());
  }
};

TEST_F(TwoGpuTest, TheLegacyStreamIsThatOfTheCurrentGpu) {
  fake_cuda::SetCurrentGpu(1);
  RankSession rank(PlaceOnOther());
  RunOnOther(rank, 20 * kMillisecond);
  RunOnOther(rank, 20 * kMillisecond);  // The first GPU is current now.
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 2; }));
  for (const protocol::RanStep& step : Steps()) {
    EXPECT_NEAR(static_cast<double>(step.instructions[0].duration), 20e6, 16);
  }
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
  EXPECT_THAT(rank.Warnings(), IsEmpty());
}

// The stream may be that of an idle GPU.
TEST_F(TwoGpuTest, TheLegacyStreamOfAnotherGpuIsRefused) {
  RankSession rank(PlaceOnOther());
  RunOnOther(rank, 20 * kMillisecond);
  EXPECT_THAT(rank.Warnings(), HasSubstr("on another GPU (GPU-00000000-0000-0000-0000-000000000000)"
                                         " than the session (GPU-01020304-"));
  EXPECT_EQ(rank.Counters().stream_failures, 1U);
  rank.Close();
  EXPECT_THAT(Steps(), IsEmpty());
}

// Without the UUID of the session's GPU, nothing can be compared.
TEST_F(TwoGpuTest, TheLegacyStreamOfAnUnknownGpuIsWarnedOf) {
  RankSession::Place place = PlaceOnOther();
  place.gpu.clear();
  RankSession rank(place);
  RunOnOther(rank, 20 * kMillisecond);
  RunOnOther(rank, 20 * kMillisecond);
  EXPECT_THAT(rank.Warnings(), HasSubstr("the session does not know its GPU"));
}

TEST_F(TwoGpuTest, AStreamWithItsOwnHandleNeedsNoGpu) {
  fake_cuda::SetCurrentGpu(1);
  stream_ = fake_cuda::MakeStream();
  fake_cuda::SetCurrentGpu(0);
  RankSession::Place place = PlaceOnOther();
  place.gpu.clear();
  RankSession rank(place);
  RunStep(rank);
  EXPECT_THAT(rank.Warnings(), Not(HasSubstr("default stream")));
}

TEST_F(TwoGpuTest, AStreamOfAnotherGpuIsRefused) {
  stream_ = fake_cuda::MakeStream();  // The stream is on the first GPU.
  RankSession rank(PlaceOnOther());
  RunStep(rank);
  EXPECT_THAT(rank.Warnings(), HasSubstr("set PERSEUS_GPU"));
}

TEST_F(TwoGpuTest, AStreamOfTheSessionsGpuIsTimedWhicheverIsCurrent) {
  fake_cuda::SetCurrentGpu(1);
  stream_ = fake_cuda::MakeStream();
  fake_cuda::SetCurrentGpu(0);
  RankSession rank(PlaceOnOther());
  RunStep(rank);
  fake_cuda::Advance(1000 * kMillisecond);
  ASSERT_TRUE(Comes([&] { return Steps().size() == 1; }));
  EXPECT_EQ(rank.Counters().stream_failures, 0U);
}

TEST_F(TwoGpuTest, EveryCallThatFindsTheGpuMayFail) {
  for (const char* call : {"cuCtxGetDevice", "cuDeviceGetUuid"}) {
    fake_cuda::Reset();
    fake_cuda::AddGpu(kOther);
    fake_cuda::SetCurrentGpu(1);
    fake_cuda::FailFrom(call, kOutOfMemory);
    RankSession rank(PlaceOnOther());
    RunOnOther(rank, kMillisecond);
    EXPECT_THAT(rank.Warnings(), HasSubstr(std::string(call) + " failed with 2"));
    EXPECT_EQ(rank.Counters().stream_failures, 1U) << call;
  }
}

}  // namespace
}  // namespace perseus
