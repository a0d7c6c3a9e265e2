#include "perseus/runtime/protocol/job_directory/rank_log.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/results.h"
#include "tests/support/sparse_file.h"
#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

RankHeader Header(int pid) {
  RankHeader header;
  header.name = {1, 3, 7};
  header.gpu = "GPU-virtual-box-3";
  header.gpu_name = "a \"fast\" one\n";
  header.host = "n\xff";  // This is not UTF-8 and becomes U+FFFD.
  header.pid = pid;
  header.sm_clocks_mhz = {210, 1410};
  header.may_set_clocks = true;
  header.epoch = 1'763'740'800'123'456'789;
  return header;
}

RanStep Step(std::int64_t number) {
  RanStep step;
  step.step = number;
  step.assignment_version = 7;
  step.has_plan = true;
  step.on_plan = true;
  step.begin = 9'007'199'254'740'993;  // 2^53 + 1 is not a double.
  step.end = step.begin + 500'000'001;
  step.instructions = {{InstructionKind::kForward, 0, 0, 0, 50'000'001, 1410},
                       {InstructionKind::kRecompute, 11, 1, 60'000'000, 1, 0}};
  step.energy = {{-40'000'000, 10'500'000, 81'234.567'890'123'4},
                 {10'500'000, 110'500'000, 81'300}};
  step.clocks = {{125'000, 131'000, 1410, 2}, {200'000, 0, 1200, 0}};
  step.temperature_c = 61;
  step.power_w = 310.1;
  step.is_limited = true;
  step.limited_by = {"power", "temperature"};
  step.reached = {{10'500'000, 1290}, {21'000'000, 1305}};
  step.waits = {{40'125'000, 2'012'000}};
  return step;
}

RankRecord Parsed(std::string_view line) {
  const auto record = ParseRecord(line.substr(0, line.size() - 1), InFile("log", 1));
  EXPECT_TRUE(record) << record.error().Message();
  return record ? *record : RankRecord(Remark{"no record"});
}

TEST(RankRecord, ParsesBackToItself) {
  RankHeader header = Header(4711);
  const std::string line = FormatRecord(header);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  header.host = "n\xEF\xBF\xBD";
  EXPECT_EQ(Parsed(line), RankRecord(header));
  EXPECT_EQ(Parsed(FormatRecord(Step(12))), RankRecord(Step(12)));
  EXPECT_EQ(Parsed(FormatRecord(Remark{"plan 7 is \"x\""})), RankRecord(Remark{"plan 7 is \"x\""}));
}

// Older clients recorded only that something limits the clock.
TEST(RankRecord, AStepNeedNotSayWhatLimitsItsClock) {
  RanStep step = Step(12);
  step.limited_by.clear();
  step.reached.clear();
  step.waits.clear();
  const std::string line = FormatRecord(step);
  EXPECT_THAT(line, HasSubstr(R"("power_w":310.1,"limited":true})"));
  EXPECT_EQ(Parsed(line), RankRecord(step));
}

TEST(RankRecord, WhatTheDriverDoesNotReportIsAbsent) {
  RanStep step = Step(12);
  step.temperature_c.reset();
  step.power_w.reset();
  const std::string line = FormatRecord(step);
  EXPECT_THAT(line, Not(HasSubstr("temperature_c")));
  EXPECT_THAT(line, Not(HasSubstr("power_w")));
  EXPECT_EQ(Parsed(line), RankRecord(step));
}

TEST(RankRecord, OnlyAPowerLimitDisturbsNoStep) {
  RanStep step;
  EXPECT_FALSE(step.IsDisturbed());
  step.is_limited = true;
  EXPECT_TRUE(step.IsDisturbed()) << "of an older client: the cause is unknown";
  step.limited_by = {"power"};
  EXPECT_FALSE(step.IsDisturbed());
  step.limited_by = {"power", "temperature"};
  EXPECT_TRUE(step.IsDisturbed());
  step.limited_by = {"what a later version may name"};
  EXPECT_TRUE(step.IsDisturbed());
}

TEST(RankRecord, AHeaderMayHaveTheStagesOfItsChunks) {
  RankHeader header = Header(4711);
  header.host = "n";
  EXPECT_THAT(FormatRecord(header), Not(HasSubstr("stages")));
  EXPECT_THAT(FormatRecord(header), Not(HasSubstr("pp_ranks")));
  header.stages = {3, 4};
  header.pp_ranks = 4;
  const std::string line = FormatRecord(header);
  EXPECT_THAT(line, HasSubstr(R"("stages":[3,4],"pp_ranks":4})"));
  EXPECT_EQ(Parsed(line), RankRecord(header));

  std::string wrong = line;
  wrong.replace(wrong.find("[3,4]"), 5, "[3,3]");
  EXPECT_THAT(ParseRecord(wrong, InFile("log", 1)).error().Message(),
              HasSubstr("log:1: stages is not in ascending order"));
}

TEST(ParseStages, ReadsAListOfAscendingStages) {
  EXPECT_THAT(*ParseStages(""), IsEmpty());
  EXPECT_THAT(*ParseStages("0,7"), ElementsAre(0, 7));
  for (const char* const text : {",", "0,", "0,7,", "a", "0, 7", "-1", "0;7", "99999999999"}) {
    EXPECT_THAT(ParseStages(text), FailsWith(HasSubstr("such as \"0,7\""))) << text;
  }
  for (const char* const text : {"1,1", "7,0"}) {
    EXPECT_THAT(ParseStages(text).error().Message(), HasSubstr("ascending stage")) << text;
  }
}

TEST(RankRecord, ErrorsNameFileLineAndField) {
  std::string line = FormatRecord(Step(12));
  line.replace(line.find("[0,0,0,0,50000001"), 2, "[9");
  const auto record = ParseRecord(line, InFile("ranks/dp0-pp3-tp0.jsonl", 17));
  ASSERT_FALSE(record);
  EXPECT_THAT(
      record.error().Message(),
      HasSubstr("ranks/dp0-pp3-tp0.jsonl:17: instructions[0][0] is not a number from 0 to 5"));
  EXPECT_FALSE(ParseRecord(R"({"remark":1})", InFile("log", 1)));
  EXPECT_FALSE(ParseRecord(R"({"perseus_rank_log":2})", InFile("log", 1)));
  EXPECT_FALSE(ParseRecord("[]", InFile("log", 1)));
}

class RankLogReaderTest : public testing::Test {
 protected:
  void Append(std::string_view text) { std::ofstream(path_, std::ios::app) << text; }
  void BeginAnew(std::string_view text) { std::ofstream(path_, std::ios::trunc) << text; }
  std::vector<RankRecord> ReadNew() {
    auto records = reader_.ReadNew();
    EXPECT_TRUE(records) << records.error().Message();
    return records ? *std::move(records) : std::vector<RankRecord>();
  }

  TemporaryDirectory directory_;
  std::filesystem::path path_ = directory_ / "rank.jsonl";
  RankLogReader reader_{path_};
};

TEST_F(RankLogReaderTest, ReadsWholeLinesOnceWhileTheLogGrows) {
  EXPECT_THAT(ReadNew(), IsEmpty());
  const std::string one = FormatRecord(Step(1));
  Append(one.substr(0, 40));
  EXPECT_THAT(ReadNew(), IsEmpty());
  Append(one.substr(40));
  Append(FormatRecord(Step(2)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(1)), RankRecord(Step(2))));
  EXPECT_THAT(ReadNew(), IsEmpty());
}

TEST_F(RankLogReaderTest, BeginsAgainWithAReplacedLogOfAnyLength) {
  Append(FormatRecord(Remark{"of process 1"}));
  Append(FormatRecord(Step(1)));
  EXPECT_EQ(ReadNew().size(), 2U);
  BeginAnew(FormatRecord(Remark{"of process 2"}) + FormatRecord(Step(1)) + FormatRecord(Step(2)));
  EXPECT_EQ(ReadNew().size(), 3U);
}

TEST_F(RankLogReaderTest, CanSkipTheRecordsThatExist) {
  const std::string next = FormatRecord(Step(2));
  Append(FormatRecord(Header(4711)) + FormatRecord(Step(1)) + next.substr(0, 40));
  const auto passed = ValueOf(reader_.SkipToEnd());
  ASSERT_TRUE(passed.header);
  EXPECT_EQ(passed.header->pid, 4711);
  EXPECT_TRUE(passed.has_steps);
  EXPECT_THAT(ReadNew(), IsEmpty());
  Append(next.substr(40) + "nonsense\n");
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(2))));
  EXPECT_THAT(reader_.ReadNew().error().Message(), HasSubstr(path_.string() + ":4"));
  BeginAnew(FormatRecord(Header(4712)));
  EXPECT_EQ(ReadNew().size(), 1U);
}

TEST_F(RankLogReaderTest, RecognizesARankThatWaitsToBegin) {
  EXPECT_FALSE(reader_.SkipToEnd()->header);
  Append(FormatRecord(Header(4711)) + FormatRecord(Remark{"a lease came"}));
  const auto passed = ValueOf(reader_.SkipToEnd());
  EXPECT_TRUE(passed.header);
  EXPECT_FALSE(passed.has_steps);
}

// A writer renames a log that has grown too long, and begins a new one.
TEST_F(RankLogReaderTest, ContinuesWithTheNextPartOfALongLog) {
  const auto set_aside = [&](std::string_view text) {
    std::ofstream(path_.string() + ".new") << text;
    std::filesystem::rename(path_, OlderRankLogPath(path_));
    std::filesystem::rename(path_.string() + ".new", path_);
  };
  const std::string header = FormatRecord(Header(4711));
  RankHeader lent = Header(4711);
  lent.may_set_clocks = false;
  Append(FormatRecord(lent) + FormatRecord(Step(1)));
  EXPECT_EQ(ReadNew().size(), 2U);
  Append(FormatRecord(Step(2)) + R"({"step":)");  // The last line is incomplete.
  set_aside(header + FormatRecord(Step(3)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(2))));
  EXPECT_EQ(ReadNew().size(), 2U);
  EXPECT_THAT(ReadNew(), IsEmpty());
  Append(FormatRecord(Step(4)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(4))));

  // A new reader reads both parts.
  RankLogReader late(path_);
  EXPECT_EQ(late.ReadNew()->size(), 3U);
  EXPECT_EQ(late.ReadNew()->size(), 3U);
  // A reader that skips old records also skips both parts.
  RankLogReader later(path_);
  EXPECT_TRUE(later.SkipToEnd()->has_steps);
  EXPECT_THAT(*later.ReadNew(), IsEmpty());

  // A reader that is two parts behind continues with the parts that exist.
  set_aside(header + FormatRecord(Step(5)));
  set_aside(header + FormatRecord(Step(6)));
  EXPECT_EQ(ReadNew().size(), 2U);
  EXPECT_THAT(ReadNew(), IsEmpty());
}

TEST_F(RankLogReaderTest, IgnoresAnOlderPartOfAnotherProcess) {
  std::ofstream(OlderRankLogPath(path_)) << FormatRecord(Header(1)) << FormatRecord(Step(1));
  Append(FormatRecord(Header(2)) + FormatRecord(Step(7)));
  EXPECT_EQ(ReadNew().size(), 2U);
  EXPECT_THAT(ReadNew(), IsEmpty());
}

// ---- Calls ahead of the GPU ----

// A step of two instructions: 40 and 50 ms. The first instruction begins `lag` after the call.
RanStep CalledStep(std::int64_t number, Nanoseconds call, Nanoseconds lag) {
  RanStep step;
  step.step = number;
  step.begin = call;
  step.end = call + lag + 90 * kMillisecond;
  step.instructions = {
      {InstructionKind::kForward, 0, 0, lag, 40 * kMillisecond, 1410},
      {InstructionKind::kBackward, 0, 0, lag + 40 * kMillisecond, 50 * kMillisecond, 1410}};
  step.energy = {{-kMillisecond, kMillisecond, 100}, {lag, lag + kMillisecond, 110}};
  step.clocks = {{lag + 1, lag + 2, 1200, 2}, {lag + 3, 0, 1100, 0}};
  step.reached = {{lag - 1, 1290}, {lag + 1, 1305}};
  step.waits = {{lag + 5, 7}};
  return step;
}

TEST_F(RankLogReaderTest, StepsOnAStreamBeginWithTheirFirstInstruction) {
  const Nanoseconds ms = kMillisecond;
  const RanStep first = CalledStep(0, 1000 * ms, 4 * ms);  // Ends at 1094 ms.
  const RanStep not_ahead = CalledStep(1, 1100 * ms, 2 * ms);
  Append(FormatRecord(Header(1)) + FormatRecord(first) + FormatRecord(not_ahead));
  Append(FormatRecord(CalledStep(2, 1150 * ms, 43 * ms)));
  const auto records = ReadNew();
  ASSERT_EQ(records.size(), 4U);
  EXPECT_EQ(records[1], RankRecord(first));
  EXPECT_EQ(records[2], RankRecord(not_ahead));
  const auto& moved = std::get<RanStep>(records[3]);
  EXPECT_EQ(moved.begin, 1193 * ms);
  EXPECT_EQ(moved.end, 1283 * ms);
  EXPECT_THAT(
      moved.instructions,
      ElementsAre(RanInstruction{InstructionKind::kForward, 0, 0, 0, 40 * ms, 1410},
                  RanInstruction{InstructionKind::kBackward, 0, 0, 40 * ms, 50 * ms, 1410}));
  EXPECT_THAT(moved.energy,
              ElementsAre(EnergySample{-44 * ms, -42 * ms, 100}, EnergySample{0, ms, 110}));
  EXPECT_THAT(moved.clocks, ElementsAre(ClockChange{1, 2, 1200, 2}, ClockChange{3, 0, 1100, 0}));
  EXPECT_THAT(moved.reached, ElementsAre(ReachedClock{1, 1305}));
  EXPECT_THAT(moved.waits, ElementsAre(Wait{5, 7}));
}

TEST_F(RankLogReaderTest, BeginsAreMovedUntilTheProcessEnds) {
  const Nanoseconds ms = kMillisecond;
  const auto begin_of = [](const std::vector<RankRecord>& records) {
    const auto* step = records.empty() ? nullptr : std::get_if<RanStep>(&records.back());
    return step == nullptr ? -1 : step->begin;
  };
  Append(FormatRecord(Header(1)) + FormatRecord(CalledStep(0, 1000 * ms, 4 * ms)));
  EXPECT_EQ(begin_of(ReadNew()), 1000 * ms);
  Append(FormatRecord(CalledStep(1, 1050 * ms, 44 * ms)));
  EXPECT_EQ(begin_of(ReadNew()), 1094 * ms);
  // The call waited for the GPU, but the times are still on the stream.
  Append(FormatRecord(CalledStep(2, 1200 * ms, 3 * ms)));
  EXPECT_EQ(begin_of(ReadNew()), 1203 * ms);
  // A second header of the same process, and a renamed log.
  std::filesystem::rename(path_, OlderRankLogPath(path_));
  Append(FormatRecord(Header(1)) + FormatRecord(CalledStep(3, 1400 * ms, 3 * ms)));
  EXPECT_EQ(begin_of(ReadNew()), 1403 * ms);
  Append(FormatRecord(Header(2)) + FormatRecord(CalledStep(0, 1450 * ms, 3 * ms)));
  EXPECT_EQ(begin_of(ReadNew()), 1450 * ms);
  // A reader that skipped the steps of a process.
  RankLogReader late(path_);
  ASSERT_TRUE(late.SkipToEnd());
  Append(FormatRecord(CalledStep(1, 1500 * ms, 43 * ms)) +
         FormatRecord(CalledStep(2, 1600 * ms, 33 * ms)));
  EXPECT_EQ(begin_of(ValueOf(late.ReadNew())), 1633 * ms);
  Append(FormatRecord(Header(3)) + FormatRecord(CalledStep(0, 2000 * ms, 3 * ms)));
  EXPECT_EQ(begin_of(ValueOf(late.ReadNew())), 2000 * ms);
}

TEST_F(RankLogReaderTest, AStepWithoutInstructionsKeepsItsBegin) {
  RanStep empty;
  empty.begin = 1050 * kMillisecond;
  empty.end = 1060 * kMillisecond;
  const RankRecord first = CalledStep(0, 1000 * kMillisecond, 4 * kMillisecond);
  Append(FormatRecord(first) + FormatRecord(empty));
  EXPECT_THAT(ReadNew(), ElementsAre(first, RankRecord(empty)));
}

TEST(RankIds, AreReadAsTheyAreWritten) {
  EXPECT_EQ(ParseRankId("dp0-pp13-tp2"), (RankId{0, 13, 2}));
  for (const char* other : {"dp0-pp13", "dp0-pp013-tp2", "dp0-pp13-tp2.old", "dp0-pp-1-tp2", ""}) {
    EXPECT_FALSE(ParseRankId(other)) << other;
  }
}

TEST_F(RankLogReaderTest, LosesNothingAroundAWrongLine) {
  Append(FormatRecord(Step(1)) + "nonsense\n" + FormatRecord(Step(2)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(1))));
  EXPECT_THAT(reader_.ReadNew(), FailsWith(HasSubstr(path_.string() + ":2")));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(2))));
}

// ---- What another user may put in place of a log ----

TEST_F(RankLogReaderTest, AFileOfAnySizeIsReadInABoundedTime) {
  Append(FormatRecord(Header(4711)) + FormatRecord(Step(1)));
  LengthenWithHole(path_);
  EXPECT_EQ(ReadNew().size(), 2U);
  EXPECT_THAT(
      reader_.ReadNew(),
      FailsAs(ErrorKind::kInput, HasSubstr(path_.string() + ":3: the line is longer than ")));
  EXPECT_THAT(ReadNew(), IsEmpty()) << "one error";
  // Records behind the hole are read again.
  Append(std::string(20U << 20U, 'x'));
  EXPECT_THAT(ReadNew(), IsEmpty());
  Append("x\n" + FormatRecord(Step(2)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(2))));
  Append("nonsense\n");
  EXPECT_THAT(reader_.ReadNew().error().Message(), HasSubstr(path_.string() + ", byte "));
}

TEST_F(RankLogReaderTest, AFileOfAnySizeIsSkippedInABoundedTime) {
  Append(FormatRecord(Header(4711)));
  LengthenWithHole(path_);
  EXPECT_THAT(reader_.SkipToEnd(), FailsWith(HasSubstr("the line is longer than ")));
  EXPECT_THAT(ReadNew(), IsEmpty());
  const std::string next = FormatRecord(Step(2));
  Append("\n" + FormatRecord(Step(1)) + next.substr(0, 40));
  RankLogReader late(path_);
  const auto passed = ValueOf(late.SkipToEnd());
  ASSERT_TRUE(passed.header);
  EXPECT_EQ(passed.header->pid, 4711);
  EXPECT_TRUE(passed.has_steps);
  Append(next.substr(40));
  EXPECT_THAT(*late.ReadNew(), ElementsAre(RankRecord(Step(2))));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(1)), RankRecord(Step(2))));
}

TEST_F(RankLogReaderTest, ALongLogIsSkippedAsAShortOne) {
  Append(FormatRecord(Header(4711)));
  const std::string remark = FormatRecord(Remark{std::string(1U << 20U, 'x')});
  for (int i = 0; i < 33; ++i) Append(remark);
  Append(FormatRecord(Step(1)));
  const auto passed = ValueOf(reader_.SkipToEnd());
  EXPECT_TRUE(passed.header);
  EXPECT_TRUE(passed.has_steps);
  Append(FormatRecord(Step(2)));
  EXPECT_THAT(ReadNew(), ElementsAre(RankRecord(Step(2))));
}

TEST_F(RankLogReaderTest, ReadsOnlyARegularFileAndNeverWaits) {
  std::ofstream(directory_ / "other") << FormatRecord(Header(1)) << FormatRecord(Step(1));
  const auto is_refused = [&](const std::string& why) {
    for (const auto& message : {RankLogReader(path_).ReadNew().error().Message(),
                                reader_.SkipToEnd().error().Message()}) {
      EXPECT_THAT(message, HasSubstr(path_.string() + ": " + why));
    }
    std::filesystem::remove(path_);
  };
  std::filesystem::create_symlink(directory_ / "other", path_);
  is_refused("is a symbolic link (put a file in its place)");
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  is_refused("is not a regular file (put a file in its place)");
  std::filesystem::create_directory(path_);
  is_refused("is not a regular file");
  Append(FormatRecord(Header(1)) + FormatRecord(Step(7)));
  ASSERT_EQ(::mkfifo(OlderRankLogPath(path_).c_str(), 0600), 0);
  EXPECT_THAT(reader_.ReadNew(), FailsWith(HasSubstr("rank.jsonl.1: is not a regular file")));
}

TEST(FindRankLogs, FindsTheNewerPartsAndFollowsNoLink) {
  const TemporaryDirectory job;
  EXPECT_THAT(*FindRankLogs(job), IsEmpty());
  std::filesystem::create_directory(job / "other");
  for (const char* name : {"dp0-pp1-tp0.jsonl", "dp0-pp1-tp0.jsonl.1", "notes.jsonl"}) {
    std::ofstream(job / "other" / name) << "x";
  }
  std::filesystem::create_symlink(job / "other", job / "ranks");
  EXPECT_THAT(FindRankLogs(job), FailsWith(HasSubstr("/ranks: is a symbolic link")));
  std::filesystem::remove(job / "ranks");
  std::filesystem::rename(job / "other", job / "ranks");
  EXPECT_THAT(*FindRankLogs(job),
              ElementsAre(testing::Pair(RankId{0, 1, 0}, job / "ranks/dp0-pp1-tp0.jsonl")));
}

}  // namespace
}  // namespace perseus::protocol
