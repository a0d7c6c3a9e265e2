// Tests of the reader of profile CSVs: what it accepts, and the message for each mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "perseus/planning/profile/profile.h"

namespace perseus::profile {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kProfileFileHeader = "stage,instruction,frequency,time,energy\n";

Result<Profile> Parse(std::string_view text) { return ParseProfile(text, "p.csv"); }
Result<Profile> ParseRows(std::string_view rows) {
  return Parse(std::string(kProfileFileHeader).append(rows));
}

TEST(ParseProfile, SortsOptionsByFrequencyHighestFirst) {
  const Result<Profile> profile =
      ParseRows("0,forward,1395,0.06,20\n0,backward,1410,0.1,45\n0,forward,1410,0.05,24\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->name(), "p.csv");
  ASSERT_EQ(profile->entries().size(), 2u);
  const ProfileEntry* forward = profile->Find(0, 0, InstructionKind::kForward);
  ASSERT_NE(forward, nullptr);
  ASSERT_EQ(forward->options.size(), 2u);
  EXPECT_EQ(forward->options[0].frequency_mhz, 1410);
  EXPECT_EQ(forward->options[0].time, 50'000'000);
  EXPECT_EQ(forward->options[0].energy_j, 24);
  EXPECT_EQ(forward->options[0].samples, 1);
}

TEST(ParseProfile, AcceptsColumnsInAnyOrderAndFreeFormatting) {
  const Result<Profile> profile = Parse(
      "\xEF\xBB\xBF"
      "energy, time ,\"frequency\",instruction,stage\r\n"
      "24,5e-2,1410.0, forward ,0\r\n\r\n45,\"0.1\",1410,\"backward\",0.0\r\n\r\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(FormatProfile(*profile),
            std::string(kProfileFileHeader) + "0,forward,1410,0.05,24\n0,backward,1410,0.1,45\n");
}

// A spreadsheet in a country with decimal commas, with other names, units, comments and empty rows.
TEST(ParseProfile, ReadsWhatSpreadsheetsWrite) {
  const std::string expected =
      std::string(kProfileFileHeader) + "0,forward,1410,0.05,24.5\n0,backward,1410,0.1002,45\n";
  for (const std::string_view text :
       {"# measured on Monday\r\nStage;Pass;Frequency;Time_ms;Energy\r\n0;F;1410;50;24,5\r\n"
        ";;;;\r\n0;Backward;1410,0;100,2;45\r\n;;;;\r\n",
        "Stage;Pass;Clock (MHz);Time (ms);Energy (J)\n0;F;1410;50;24,5\n0;B;1410;100,2;45\n",
        "stage\tinstruction\tclock_mhz\ttime_us\tenergy_j\n0\tfwd\t1410\t50000\t24.5\n\t\t\t\t\n"
        "0\tBWD\t1410\t100200\t45\n",
        "\n#,,,\nSTAGE,INSTRUCTION,freq_mhz,time_s,\"energy\"\n0,FORWARD,1410,0.05,24.5\n,,,,\n"
        "  # the second\n0,b,1410,0.1002,45\n"}) {
    const Result<Profile> profile = Parse(text);
    ASSERT_TRUE(profile) << profile.error().Message();
    EXPECT_EQ(FormatProfile(*profile), expected) << text;
  }
}

TEST(ParseProfile, ADecimalCommaNeedsAnotherSeparatorAndNoPoint) {
  EXPECT_THAT(
      Parse("stage;instruction;frequency;time;energy\n0;F;1410;1.000,5;24\n").error().Message(),
      HasSubstr("p.csv:2: time \"1.000,5\" is not a number"));
  EXPECT_THAT(
      Parse("stage,instruction,frequency,time,energy\n0,F,1410,\"0,5\",24\n").error().Message(),
      HasSubstr("p.csv:2: time \"0,5\" is not a number"));
}

TEST(ParseProfile, TheUnitOfTheColumnIsInTheMessage) {
  EXPECT_THAT(
      Parse("stage,instruction,frequency,time_ms,energy\n0,F,1410,1e12,24\n").error().Message(),
      HasSubstr("time \"1e12\" is too large (are the units mixed up? expected milliseconds"));
}

TEST(ParseProfile, NamesAllWrongRowsAtOnce) {
  const Result<Profile> profile =
      ParseRows("0,forward,1410,0.05,24\n0,fowrard,1410,0.05,24\n0,backward,1410,x,45\n");
  EXPECT_EQ(
      profile.error().Message(),
      "p.csv:3: 2 rows are wrong: line 3: instruction \"fowrard\" is unknown (did you mean "
      "forward? expected one of forward, backward, backward_input, backward_weight, recompute, "
      "optimizer_step); "
      "line 4: time \"x\" is not a number (expected seconds, such as 0.0502)");
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "0,forward,1410,x,24\n";
  const std::string message = ParseRows(many).error().Message();
  EXPECT_THAT(message, StartsWith("p.csv:2: 1000 rows are wrong: line 2: time \"x\""));
  EXPECT_THAT(message, ::testing::EndsWith("; and 995 more rows"));
  EXPECT_LT(message.size(), 1000u);
}

TEST(ParseProfile, ReadsTheTwoColumnsOfNoise) {
  constexpr std::string_view kNoisy =
      "stage,instruction,frequency,time,energy,noise,common_noise\n"
      "0,forward,1410,0.05,24,0.03,0.01\n0,backward,1410,0.1,45,0.04,\n";
  const Result<Profile> profile = Parse(kNoisy);
  ASSERT_TRUE(profile) << profile.error().Message();
  ASSERT_TRUE(profile->noise());
  EXPECT_DOUBLE_EQ(profile->noise()->independent, std::sqrt((0.03 * 0.03 + 0.04 * 0.04) / 2));
  EXPECT_DOUBLE_EQ(profile->noise()->common, 0.01);
  EXPECT_THAT(profile->other_knob_names(), ::testing::IsEmpty());
  EXPECT_EQ(profile->entries().size(), 2u);
}

TEST(ParseProfile, HasNoNoiseWithoutValues) {
  EXPECT_EQ(ParseRows("0,forward,1410,0.05,24\n")->noise(), std::nullopt);
  for (const char* value : {"", "0"}) {
    EXPECT_EQ(Parse(std::string("stage,instruction,frequency,time,energy,noise\n"
                                "0,forward,1410,0.05,24,") +
                    value + "\n")
                  ->noise(),
              std::nullopt);
  }
}

TEST(ParseProfile, RefusesNoiseInPercent) {
  EXPECT_THAT(Parse("stage,instruction,frequency,time,energy,common_noise\n"
                    "0,forward,1410,0.05,24,1.5\n")
                  .error()
                  .Message(),
              HasSubstr("p.csv:2: common_noise \"1.5\" is out of range"));
}

TEST(FormatProfile, WritesTheNoise) {
  const Profile profile = ParseRows("0,forward,1410,0.05,24\n").value();
  const std::string text = FormatProfile(profile, {0.0123456, 0});
  EXPECT_EQ(text,
            "stage,instruction,frequency,time,energy,noise,common_noise\n"
            "0,forward,1410,0.05,24,0.01235,0\n");
  EXPECT_EQ(Parse(text)->noise(), (TimeNoise{0.01235, 0}));
}

// An instruction without such a setting has no text.
TEST(ParseProfile, AKnobMayHaveTexts) {
  const std::string text =
      "stage,instruction,frequency,attention,recompute,time,energy\n"
      "0,forward,1410,flash,,0.05,24\n0,forward,1410,plain,,0.08,20\n"
      "0,backward,1410,,all,0.1,48\n";
  const Result<Profile> profile = Parse(text);
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->knob_labels(), (KnobLabels{{"flash", "plain", ""}, {"", "all"}}));
  EXPECT_EQ(profile->entries()[0].options[1].other_knobs, (std::vector<double>{1, 0}));
  EXPECT_EQ(profile->entries()[1].options[0].other_knobs, (std::vector<double>{2, 1}));
  const std::string written = FormatProfile(*profile);
  EXPECT_EQ(FormatProfile(*Parse(written)), written);
  EXPECT_NE(written.find("0,forward,1410,plain,,0.08"), std::string::npos) << written;
}

// Each row of such a profile may have texts of its own.
TEST(ParseProfile, TextsAreNoMeasurements) {
  EXPECT_TRUE(
      Parse("stage,instruction,frequency,config,time,energy\n0,forward,2,a,1,1\n"
            "0,forward,2,b,1.1,1\n0,forward,1,c,1.2,1\n0,forward,1,d,1.3,1\n"));
}

TEST(ParseProfile, FurtherColumnsAreKnobs) {
  const Result<Profile> profile = Parse(
      "stage,instruction,frequency,sm_count,time,energy,offset\n"
      "0,forward,1410,108,0.05,24,-1\n0,forward,1410,54,0.08,20,-1\n"
      "0,forward,1410,108,0.07,24,-1\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->other_knob_names(), (std::vector<std::string>{"sm_count", "offset"}));
  const std::span<const Option> options = profile->entries()[0].options;
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].other_knobs, (std::vector<double>{54, -1}));
  EXPECT_EQ(options[1].other_knobs, (std::vector<double>{108, -1}));
  EXPECT_EQ(options[1].samples, 2);
}

constexpr std::string_view kConfidentHeader =
    "stage,instruction,frequency,time,energy,samples,time_ci,energy_ci\n";

Result<Profile> ParseConfidentRows(std::string_view rows) {
  return Parse(std::string(kConfidentHeader).append(rows));
}

TEST(ParseProfile, ColumnsOfConfidenceAreNotKnobsAndAreWrittenAgain) {
  const std::string text = std::string(kConfidentHeader) +
                           "0,forward,1410,0.05,24,72,0.00011,0.07\n"
                           "0,forward,1395,0.051,23.7,1,,\n";
  const Result<Profile> profile = Parse(text);
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_TRUE(profile->other_knob_names().empty());
  const std::span<const Option> options = profile->entries()[0].options;
  ASSERT_EQ(options.size(), 2u);
  EXPECT_EQ(options[0].samples, 72);
  EXPECT_EQ(options[0].time_ci_s, 0.00011);
  EXPECT_EQ(options[0].energy_ci_j, 0.07);
  EXPECT_EQ(options[1].samples, 1);
  EXPECT_EQ(options[1].time_ci_s, 0);
  EXPECT_EQ(FormatProfile(*profile), text);
}

TEST(ParseProfile, TheWeightOfARepeatIsItsSamples) {
  // Means: (3 * 0.050 + 0.054) / 4 = 0.051, (3 * 24 + 28) / 4 = 25. Half-widths of independent
  // means: sqrt((3 * 0.003)^2 + (1 * 0.012)^2) / 4 = 0.015 / 4, and the same in joules, where the
  // rows differ by 4 J: less than the sqrt(3^2 + 12^2) that their intervals allow.
  const Result<Profile> profile =
      ParseConfidentRows("0,forward,1410,0.05,24,3,0.003,3\n0,forward,1410,0.054,28,1,0.012,12\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  const Option& option = profile->entries()[0].options[0];
  EXPECT_EQ(option.samples, 4);
  EXPECT_EQ(option.time, 51'000'000);
  EXPECT_DOUBLE_EQ(option.energy_j, 25);
  EXPECT_DOUBLE_EQ(option.time_ci_s, 0.015 / 4);
  EXPECT_DOUBLE_EQ(option.energy_ci_j, 15.0 / 4);
}

TEST(ParseProfile, RepeatsThatDifferByMoreThanTheirIntervalsWidenTheAverages) {
  // Two rows of equal weight are 4 J apart, and each has a half-width of 0.1 J. So chi-squared is
  // (4 / (sqrt(2) * 0.1 / 1.96))^2 with one degree of freedom, and the half-width sqrt(2) * 0.1 / 2
  // grows by its square root, to 1.96 * 4 / 2 = 3.92. One of the times has no interval, so their
  // average has none.
  const Result<Profile> profile =
      ParseConfidentRows("0,forward,1410,0.05,24,5,0.001,0.1\n0,forward,1410,0.05,28,5,,0.1\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  const Option& option = profile->entries()[0].options[0];
  EXPECT_NEAR(option.energy_ci_j, 3.92, 1e-3);  // The exact factor is 1.959964.
  EXPECT_EQ(option.time_ci_s, 0);
}

TEST(ParseProfile, TheErrorOfWrongConfidenceHasARemedy) {
  EXPECT_EQ(ParseConfidentRows("0,forward,1410,0.05,24,0,,\n").error().Message(),
            "p.csv:2: samples \"0\" is not a whole number from 1 to 1000000000 (write how many "
            "instructions were averaged)");
  EXPECT_THAT(ParseConfidentRows("0,forward,1410,0.05,24,1,-0.1,\n").error().Message(),
              StartsWith("p.csv:2: time_ci \"-0.1\" is not positive"));
  EXPECT_THAT(ParseConfidentRows("0,forward,1410,0.05,24,1,,few\n").error().Message(),
              StartsWith("p.csv:2: energy_ci \"few\" is not a number"));
}

// A profile with ten clocks, each measured three times, and one more column.
std::string Repeated(std::string_view column, double (*value)(int mhz, int repeat, int row)) {
  std::string text = fmt::format("stage,instruction,frequency,time,energy,{}\n", column);
  int row = 0;
  for (int mhz = 1000; mhz < 1100; mhz += 10) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      text += fmt::format("0,forward,{},0.05,24,{}\n", mhz, value(mhz, repeat, row++));
    }
  }
  return text;
}

TEST(ParseProfile, RefusesAMeasuredColumnAsAKnob) {
  const auto row_number = Repeated("row", [](int, int, int row) { return 1.0 * row; });
  EXPECT_EQ(Parse(row_number).error().Message(),
            "p.csv:3: \"row\" is 1 here and 0 on line 2 at the same frequency, and its values "
            "hardly ever repeat: it looks like a measurement, not a setting (remove the column)");
  // A few values are equal by chance.
  const auto power =
      Repeated("power", [](int mhz, int, int row) { return 0.25 * mhz + 0.5 * (row * row % 50); });
  EXPECT_THAT(Parse(power).error().Message(), HasSubstr("looks like a measurement"));
}

TEST(ParseProfile, AColumnOfAFewValuesIsAKnob) {
  const auto sweep = Repeated("sm_count", [](int, int repeat, int) { return 36.0 * (1 + repeat); });
  EXPECT_EQ(Parse(sweep)->entries()[0].options.size(), 30u);
  const auto constant = Repeated("gpus", [](int, int, int) { return 8.0; });
  EXPECT_EQ(Parse(constant)->entries()[0].options.size(), 10u);
  const auto follows_the_clock = Repeated("voltage", [](int mhz, int, int) { return mhz / 1e3; });
  EXPECT_EQ(Parse(follows_the_clock)->entries()[0].options.size(), 10u);
  // Every clock appears once, so no average would lose anything.
  EXPECT_TRUE(
      Parse("stage,instruction,frequency,time,energy,row\n"
            "0,forward,1410,0.05,24,0\n0,forward,1395,0.06,22,1\n"));
  // The profile has a single clock and sweeps the other knob.
  EXPECT_TRUE(
      Parse("stage,instruction,frequency,time,energy,sm_count\n"
            "0,forward,1410,0.05,24,108\n0,forward,1410,0.06,22,54\n"));
}

TEST(ParseProfile, RanksMeasureTheSameStage) {
  const Result<Profile> profile = Parse(
      "rank,dp_rank,pp_rank,tp_rank,instruction,frequency,time,energy\n"
      "0,0,0,0,forward,1410,0.050,24\n1,0,0,1,forward,1410,0.052,25\n"
      "2,0,1,0,forward,1410,0.050,24\n3,0,1,1,forward,1410,0.052,25\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->pp_ranks(), 2);
  const Option& option = profile->entries()[1].options[0];
  EXPECT_EQ(option.time, 51'000'000);
  EXPECT_EQ(option.energy_j, 24.5);
  EXPECT_EQ(option.samples, 2);
}

TEST(ParseProfile, NanosecondsAreRoundedAfterAveraging) {
  // If each were rounded first (1, 1 and 2 ns), the average would be 1 ns.
  const Result<Profile> profile =
      ParseRows("0,forward,1,1.4e-9,1\n0,forward,1,1.4e-9,1\n0,forward,1,1.9e-9,1\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->entries()[0].options[0].time, 2);
}

TEST(ParseProfile, ChunksAreEntriesOfTheirOwn) {
  const Result<Profile> profile = Parse(
      "stage,chunk,instruction,frequency,time,energy\n"
      "0,1,forward,1410,0.05,24\n0,0,forward,1410,0.06,25\n");
  ASSERT_TRUE(profile) << profile.error().Message();
  EXPECT_EQ(profile->chunks(), 2);
  EXPECT_EQ(profile->Find(0, 1, InstructionKind::kForward)->options[0].energy_j, 24);
}

TEST(ParseProfile, TheCallerChoosesHowMuchRepeatsMayDiffer) {
  const std::string text = std::string(kProfileFileHeader) + "0,forward,1,1,1\n0,forward,1,1.6,1\n";
  EXPECT_FALSE(ParseProfile(text, "p"));
  EXPECT_TRUE(ParseProfile(text, "p", {.largest_repeat_ratio = 2}));
}

struct Mistake {
  std::string_view name;
  std::string text;
  std::string_view place;  // The beginning of the message.
  std::string_view cause;
  std::string_view remedy;
};

Mistake Row(std::string_view name, std::string_view row, std::string_view cause,
            std::string_view remedy) {
  return {name, std::string(kProfileFileHeader).append(row), "p.csv:2: ", cause, remedy};
}

class ParseProfileMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(ParseProfileMistake, TheMessageIsOneLineWithPlaceCauseAndRemedy) {
  const Result<Profile> profile = Parse(GetParam().text);
  ASSERT_FALSE(profile);
  const std::string message = profile.error().Message();
  EXPECT_EQ(profile.error().kind, ErrorKind::kInput);
  EXPECT_THAT(message, StartsWith(std::string(GetParam().place)));
  EXPECT_THAT(message, HasSubstr(std::string(GetParam().cause)));
  EXPECT_THAT(message, HasSubstr(std::string(GetParam().remedy)));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.back(), ')') << message;
}

const Mistake kMistakes[] = {
    {"Empty", "", "p.csv: ", "the file is empty",
     "expected CSV with the header stage,instruction,"},
    {"OnlyBlankLines", "\n \n", "p.csv: ", "the file is empty", "expected CSV"},
    {"OnlyTheHeader", std::string(kProfileFileHeader), "p.csv: ", "no rows", "add a row"},
    {"Binary",
     std::string("\x7F"
                 "ELF\x02\0\0\0",
                 8),
     "p.csv:1: ", "\"\\x7FELF\\x02\\x00", "expected CSV in UTF-8"},
    {"Utf16", std::string("\xFF\xFEs\0t\0", 6), "p.csv:1: ", "is not text", "UTF-8"},
    {"MissingColumn", "stage,instruction,frequency,time\n", "p.csv:1: ", "\"energy\" is missing",
     "expected the header stage,instruction,frequency,time,energy, in any order"},
    {"MissingColumns", "stage,pass,Clock,time\n", "p.csv:1: ",
     "columns \"frequency\", \"energy\" are missing (is it \"Clock\"? rename that, in MHz; ",
     "expected the header stage,instruction,frequency"},
    {"ColumnInAnotherUnit", "stage,instruction,frequency,time,Energy (kJ)\n", "p.csv:1: ",
     "\"energy\" is missing (is it \"Energy (kJ)\"? rename that, in joules", "in any order"},
    {"ColumnWithAnUnknownUnit", "stage,instruction,frequency,time_min,energy\n", "p.csv:1: ",
     "column \"time\" is missing (is it \"time_min\"? rename that, in seconds;", "in any order"},
    {"TwoUnits", "stage,instruction,frequency,time,Time_ms,energy\n",
     "p.csv:1: ", "columns \"time\" and \"Time_ms\" mean the same", "keep one"},
    {"ColumnAbbreviated", "stage,instruction,freq,time,energy\n",
     "p.csv:1: ", "\"frequency\" is missing (is it \"freq\"? rename that, in MHz;", "in any order"},
    {"ColumnWithItsUnitAndAnother", "stage,instruction,frequency,time_m,energy,time_std\n",
     "p.csv:1: ", "is it \"time_m\"? rename that", "in any order"},
    {"Spaces", "stage instruction frequency time energy\n",
     "p.csv:1: ", "spaces separate the fields (use commas;", "expected the header"},
    {"ColumnTwice", "stage,time,time\n", "p.csv:1: ", "column \"time\" appears twice", "keep one"},
    {"TooManyColumns", "stage" + std::string(300, ','), "p.csv:1: ", "301 columns are too many",
     "at most 256"},
    {"ColumnWithoutName", ",stage,time\n", "p.csv:1: ", "column 1 has no name", "remove it"},
    {"ColumnNameOfTwoLines", "stage,\"a\nb\"\n", "p.csv:1: ", "\"a\\x0Ab\" is not text", "UTF-8"},
    Row("FieldMissing", "0,forward,1410,0.05\n", "has 4 fields, but the header has 5", "complete"),
    Row("FieldTooMany", "0,forward,1410,0,05,23,8\n", "has 7 fields, but the header has 5",
        "remove"),
    Row("QuoteOpen", "0,\"forward,1410,0.05,23\n", "no closing quote", "add it"),
    Row("NotANumber", "0,forward,14l0,0.05,23\n", "frequency \"14l0\" is not a number",
        "expected MHz, such as 1410"),
    Row("NumberWithUnit", "0,forward,1410,50ms,23\n", "time \"50ms\" is not a number",
        "expected seconds, such as 0.0502"),
    Row("NumberMissing", "0,forward,1410,0.05,\n", "energy \"\" is not a number",
        "expected joules, such as 23.8"),
    Row("LongNonsense", "0,forward,1410,0.05," + std::string(99, 'x'),
        "xxxxxx...\" is not a number", "expected joules"),
    Row("ControlCharacters", "0,forward,1410,0.05,\x1B[2J\n", "energy \"\\x1B[2J\"", "expected"),
    Row("NotFinite", "0,forward,1410,0.05,nan\n", "energy \"nan\" is not a number in range",
        "leave failed measurements out"),
    Row("Infinite", "0,forward,1410,-inf,1\n", "time \"-inf\" is not a number in range", "leave"),
    Row("Overflow", "0,forward,1410,0.05,1e999\n", "\"1e999\" is not a number in range", "leave"),
    Row("ZeroTime", "0,forward,1410,0,23\n", "time \"0\" is not positive", "leave failed"),
    Row("NegativeEnergy", "0,forward,1410,0.05,-3\n", "energy \"-3\" is not positive", "leave"),
    Row("ZeroFrequency", "0,forward,0,0.05,23\n", "frequency \"0\" is not positive",
        "expected MHz"),
    Row("TimeInNanoseconds", "0,forward,1410,50161667,23\n", "time \"50161667\" is too large",
        "are the units mixed up? expected seconds"),
    Row("TimeOfNothing", "0,forward,1410,4e-10,23\n", "time \"4e-10\" is too small", "units"),
    Row("EnergyTooLarge", "0,forward,1410,1,2e12\n", "energy \"2e12\" is too large", "joules"),
    Row("FrequencyInHertz", "0,forward,1.41e9,1,2\n", "frequency \"1.41e9\" is too large", "MHz"),
    Row("FrequencyInGigahertz", "0,forward,1.41,1,2\n",
        "frequency \"1.41\" is not a whole number of MHz", "units"),
    Row("NegativeStage", "-1,forward,1410,1,2\n", "stage \"-1\" is not a whole number from 0", "0"),
    Row("FractionalStage", "0.5,forward,1410,1,2\n", "stage \"0.5\" is not a whole number",
        "from 0"),
    Row("AbsurdStage", "1000001,forward,1410,1,2\n", "from 0 to 1000000", "count from 0"),
    Row("Misspelt", "0,foward,1410,1,2\n", "instruction \"foward\" is unknown",
        "did you mean forward? expected one of forward, backward, backward_input,"),
    Row("Abbreviated", "0,backwrd,1410,1,2\n", "instruction \"backwrd\" is unknown",
        "did you mean backward? expected one of"),
    Row("UnknownInstruction", "0,X,1410,1,2\n", "instruction \"X\" is unknown (expected one of",
        "backward_weight, recompute, optimizer_step)"),
    Row("FixedInstruction", "0,all_reduce,1410,1,2\n",
        "\"all_reduce\" does not belong in a profile, which measures forward,", "remove the row"),
    {"StageMissing",
     std::string(kProfileFileHeader) + "3,forward,1,1,1\n0,forward,1,1,1\n2,forward,1,1,1\n",
     "p.csv: ", "stage 1 is missing", "number the stages 0, 1, ... without a gap"},
    {"NegativeChunk", "stage,chunk,instruction,frequency,time,energy\n0,-1,forward,1,1,1\n",
     "p.csv:2: ", "chunk \"-1\" is not a whole number", "count from 0"},
    {"ChunkMissing",
     "stage,chunk,instruction,frequency,time,energy\n0,0,forward,1,1,1\n1,1,forward,1,1,1\n",
     "p.csv: ", "chunk 0 of stage 1 is missing, but chunk 1 exists", "add its rows"},
    {"KnobNotANumber",
     "stage,instruction,frequency,time,energy,sms\n0,forward,2,1,1,9\n0,forward,1,1,1,8O\n",
     "p.csv:3: ", "sms \"8O\" is not a number", "remove the column if it is not a knob"},
    {"RankNotANumber", "rank,stage,instruction,frequency,time,energy\nx,0,forward,1,1,1\n",
     "p.csv:2: ", "rank \"x\" is not a number", "a whole number, such as 0"},
    {"StageIsNotPipelineRank",
     "pp_rank,stage,instruction,frequency,time,energy\n1,0,forward,1,1,1\n",
     "p.csv:2: ", "stage 0 and pp_rank 1 differ", "remove one column"},
    {"RepeatsDisagreeInTime",
     std::string(kProfileFileHeader) + "0,forward,1,1,1\n0,backward,1,9,9\n0,forward,1,1.6,1\n",
     "p.csv:4: ", "time of stage 0 forward at 1 MHz is 1.6 s here and 1 s on line 2",
     "remove the wrong row"},
    {"RepeatsDisagreeInEnergy",
     std::string(kProfileFileHeader) + "0,forward,1,1,9\n\n0,forward,1,1,1\n",
     "p.csv:4: ", "energy of stage 0 forward at 1 MHz is 1 J here and 9 J on line 2",
     "may differ by a factor of 1.5"},
    {"RepeatsDisagreeWhicheverCameFirst",
     std::string(kProfileFileHeader) + "0,forward,1,1.3,1\n0,forward,1,1,1\n0,forward,1,1.6,1\n",
     "p.csv:4: ", "time of stage 0 forward at 1 MHz is 1.6 s here and 1 s on line 3",
     "remove the wrong row"},
};

INSTANTIATE_TEST_SUITE_P(Every, ParseProfileMistake, ::testing::ValuesIn(kMistakes),
                         [](const auto& mistake) { return std::string(mistake.param.name); });

}  // namespace
}  // namespace perseus::profile
