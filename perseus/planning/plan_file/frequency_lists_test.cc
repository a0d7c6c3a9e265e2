// Tests of the lists of clocks that other tools of the field write and read.
#include "perseus/planning/plan_file/frequency_lists.h"

#include "perseus/planning/plan/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perseus/simulation/synthetic/synthetic_profile.h"

namespace perseus::plan_file {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(std::string_view text) {
  const auto lists = ParseFrequencyLists(text, "f.py");
  return lists ? "no error" : lists.error().message;
}

TEST(FrequencyListsTest, ReadsPairsOfInstructionAndFrequency) {
  const auto lists = ParseFrequencyLists(
      "[\n"
      "[('forward', 1410), ('backward', 1395)],\n"
      "[(\"forward\", 1200), ('backward', 1185.5)],\n"
      "]\n"
      "# Iteration 42 cost change: -0.25\n",
      "f.py");
  ASSERT_TRUE(lists) << lists.error().message;
  ASSERT_EQ(lists->pp_ranks.size(), 2U);
  EXPECT_EQ(lists->pp_ranks[0][1].kind, InstructionKind::kBackward);
  EXPECT_EQ(lists->pp_ranks[1][0].frequency_mhz, 1200);
  EXPECT_EQ(lists->pp_ranks[1][1].frequency_mhz, 1185.5);
  EXPECT_EQ(lists->pp_ranks[1][1].line, 3);
}

TEST(FrequencyListsTest, ReadsBareFrequenciesOfOlderFiles) {
  const auto lists =
      ParseFrequencyLists("# a comment\r\n[[1410, 1395],\r\n (1200, 1185,)]", "f.py");
  ASSERT_TRUE(lists) << lists.error().message;
  EXPECT_EQ(lists->pp_ranks[1][1].frequency_mhz, 1185);
  EXPECT_FALSE(lists->pp_ranks[0][0].kind);
  EXPECT_EQ(lists->pp_ranks[1][1].line, 3);
}

TEST(FrequencyListsTest, AnythingElseIsAnErrorWithItsLine) {
  EXPECT_EQ(ErrorOf(""),
            "f.py:1: the file ends too early (expected [ before the first pp_rank's list)");
  EXPECT_EQ(ErrorOf("[]"), "f.py: the list is empty (expected a list for each pp_rank)");
  EXPECT_EQ(ErrorOf("[[1410],\n[]]"),
            "f.py:2: the pp_rank's list is empty (expected its frequencies)");
  EXPECT_EQ(
      ErrorOf("[[1410\n"),
      "f.py:2: the file ends too early (expected a comma or ] after the pp_rank's last entry)");
  EXPECT_THAT(ErrorOf("freqs = [[1410]]"), StartsWith("f.py:1: \"freqs\" (expected ["));
  EXPECT_THAT(ErrorOf("[[14l0]]"), StartsWith("f.py:1: \"14l0\" (expected a frequency in MHz"));
  EXPECT_THAT(ErrorOf("[[-5]]"), HasSubstr("\"-5\" (expected a frequency"));
  EXPECT_THAT(ErrorOf("[[1e999]]"), HasSubstr("expected a frequency"));
  EXPECT_THAT(ErrorOf("[[nan]]"), HasSubstr("expected a frequency"));
  EXPECT_THAT(ErrorOf("[[[[[[1]]]]]]"), HasSubstr("expected an instruction"));
  EXPECT_THAT(ErrorOf("[[1410)]"), HasSubstr("\")\" (expected ])"));
  EXPECT_THAT(ErrorOf("[[('forward', 1410]]"), HasSubstr("\"]\" (expected ))"));
  EXPECT_THAT(ErrorOf("[[('forward', 1410 ')', 1395]]"), HasSubstr("expected ))"));
  EXPECT_THAT(ErrorOf("[[('foreword', 1410)]]"), HasSubstr("expected forward, backward"));
  EXPECT_THAT(ErrorOf("[[('load', 1410)]]"), HasSubstr("expected forward, backward"));
  EXPECT_THAT(ErrorOf("[[('for\\x77ard', 1410)]]"), HasSubstr("expected an instruction"));
  EXPECT_THAT(ErrorOf("[[1410]]\n__import__('os')"),
              StartsWith("f.py:2: \"__import__\" (expected"));
}

class FrequencyListsOfAPlanTest : public testing::Test {
 protected:
  FrequencyListsOfAPlanTest() {
    synthetic::SyntheticProfileSpec spec;
    spec.stages = 2;
    schedule::PipelineModel model;
    model.fixed.load = {.time = 1000};  // The lists must not have it.
    const auto schedule =
        schedule::GenerateSchedule({.name = "1f1b", .pp_ranks = 2, .microbatches = 3});
    graph_ =
        *schedule::BuildInstructionGraph(*schedule, *synthetic::SynthesizeProfile(spec), model);
    plan_.target = "no slowdown";
    plan_.options = schedule::BaselineOptions(graph_);
    for (std::size_t i = 0; i < plan_.options.size(); ++i) {
      if (IsComputation(graph_.options_of(static_cast<int>(i)).kind)) {
        plan_.options[i] = static_cast<int>(i % 5);
      }
    }
    plan_.evaluation = plan::Evaluator(graph_, {80, 0}).Evaluate(plan_.options);
  }

  std::string ErrorOfLists(std::string_view text) const {
    const auto options = FindOptions(*ParseFrequencyLists(text, "f.py"), graph_, "f.py");
    return options ? "no error" : options.error().message;
  }

  ListedPlan Listed() const {
    return {plan_.options, plan_.target, plan_.evaluation.time, plan_.evaluation.energy_j};
  }

  schedule::InstructionGraph graph_;
  plan::Plan plan_;
};

TEST_F(FrequencyListsOfAPlanTest, AreTheSameAfterWritingAndReading) {
  const auto text = FormatFrequencyLists(graph_, Listed());
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_THAT(*text, StartsWith("[\n[('forward', "));
  EXPECT_THAT(*text, HasSubstr("# no slowdown\n"));
  const auto lists = ParseFrequencyLists(*text, "f.py");
  ASSERT_TRUE(lists) << lists.error().message;
  const auto options = FindOptions(*lists, graph_, "f.py");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(*options, plan_.options);
}

TEST_F(FrequencyListsOfAPlanTest, MustFitTheJob) {
  EXPECT_THAT(ErrorOfLists("[[1410]]"),
              StartsWith("f.py: has lists for 1 pp_ranks, but the job has 2 ("));
  EXPECT_THAT(
      ErrorOfLists("[[1410],\n[1410]]"),
      StartsWith("f.py:1: pp_rank 0 has 1 frequencies, but the job has 6 instructions there"));
  EXPECT_THAT(ErrorOfLists("[[1410,1410,1410,1410,1410,1410],\n"
                           "[('forward',1410),('forward',1410),1410,1410,1410,1410]]"),
              StartsWith("f.py:2: entry 1 of pp_rank 1 is a forward, but the job has backward"));
  EXPECT_THAT(ErrorOfLists("[[1410,1410,1410,1410,1410,1410],\n"
                           "[1410,1410,1410,1410,1410,1412]]"),
              StartsWith("f.py:2: stage 1 backward was not measured at 1412 MHz, the nearest "
                         "measured is 1410 MHz ("));
}

TEST_F(FrequencyListsOfAPlanTest, CannotHaveOtherKnobsOrFractions) {
  schedule::InstructionGraph with_knobs = graph_;
  with_knobs.other_knob_names = {"sm_count"};
  EXPECT_THAT(FormatFrequencyLists(with_knobs, Listed()).error().message,
              HasSubstr("cannot have the knob \"sm_count\""));
  schedule::InstructionGraph fractional = graph_;
  for (schedule::OptionSet& set : fractional.option_sets) {
    for (profile::Option& option : set.options) option.frequency_mhz += 0.5;
  }
  EXPECT_THAT(FormatFrequencyLists(fractional, Listed()).error().message,
              HasSubstr("can only have whole MHz"));
}

}  // namespace
}  // namespace perseus::plan_file
