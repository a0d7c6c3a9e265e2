// Tests help, version and completion.
#include <gmock/gmock.h>

#include <algorithm>
#include <cctype>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/program.h"

namespace perseus {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

class VerbsTest : public CommandTest {};

TEST_F(VerbsTest, HelpHasExamples) {
  EXPECT_THAT(RunWell("--help"),
              AllOf(HasSubstr("perseus plan profile.csv"), HasSubstr("Exit status")));
  for (const char* verb : {"plan", "evaluate", "partition", "replay", "synth", "completion"}) {
    EXPECT_THAT(RunWell(std::string(verb) + " --help"),
                AllOf(HasSubstr("Examples:"), HasSubstr(std::string("perseus ") + verb)));
  }
}

TEST_F(VerbsTest, Version) {
  for (const char* arguments : {"--version", "-V", "version"}) {
    // The output has the version, the commit and the build.
    EXPECT_THAT(RunWell(arguments), ContainsRegex(R"(^perseus [0-9.]+ \([^;]+; [^)]+\))"));
  }
}

// Returns the words at the beginning of the lines in the groups. The groups are after the example.
std::vector<std::string> ListedVerbs(const std::string& help) {
  std::vector<std::string> verbs;
  std::istringstream lines(help.substr(0, help.find('`')));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("  ") && line.size() > 14 && std::isupper(line[14]))
      verbs.push_back(line.substr(2, line.find(' ', 2) - 2));
  }
  return verbs;
}

TEST_F(VerbsTest, HelpListsEachVerbInALine) {
  const std::string help = RunWell("--help");
  for (const char* same : {"", "help", "-h"}) EXPECT_EQ(RunWell(same), help);
  EXPECT_LE(std::ranges::count(help, '\n'), 50);
  const auto verbs = ListedVerbs(RunWell("help --all"));
  EXPECT_THAT(verbs, IsSupersetOf({"plan", "agent", "serve", "help", "version"}));
  for (const std::string& verb : verbs) {
    EXPECT_EQ(RunWell("help " + verb), RunWell(verb + " --help")) << verb;
  }
  EXPECT_EQ(RunWell("help job register"), RunWell("job register --help"));
}

TEST_F(VerbsTest, HelpFitsIn80Columns) {
  std::vector<std::string> verbs = ListedVerbs(RunWell("help --all"));
  verbs.insert(verbs.end(), {"", "job register", "gpu grant", "token create", "schedule search"});
  for (const std::string& verb : verbs) {
    std::istringstream help(RunWell("help " + verb));
    for (std::string line; std::getline(help, line);) {
      // Counts characters, not bytes. In UTF-8, a byte that continues a character begins with 10.
      const auto columns = std::ranges::count_if(line, [](char c) { return (c & 0xc0) != 0x80; });
      EXPECT_LE(columns, 80) << verb << ": " << line;
    }
  }
}

TEST_F(VerbsTest, ALongHelpBeginsWithWhatMostNeed) {
  const std::string help = RunWell("help plan");
  const std::size_t others = help.find("\nOptions:\n");
  EXPECT_LT(help.find("\nMost needed:\n"), others);
  EXPECT_LT(help.find("--blocking-power W"), others);
  EXPECT_EQ(help.find("--microbatches N "), help.rfind("--microbatches N "));
  EXPECT_EQ(RunWell("help show").find("Most needed"), std::string::npos);
}

TEST_F(VerbsTest, HelpHasDefaults) {
  EXPECT_THAT(RunWell("help replay"), AllOf(HasSubstr("(default: a100)"), HasSubstr("(default: 5)"),
                                            HasSubstr("(default: 1)")));
  EXPECT_THAT(RunWell("help synth"),
              AllOf(HasSubstr("(default: 0.07)"), HasSubstr("(default: 1)")));
  EXPECT_THAT(RunWell("help partition"), HasSubstr("(default: 1f1b)"));
}

TEST_F(VerbsTest, OnlyAVerbForSeveralTargetsSaysThatFlagsMayBeRepeated) {
  for (const char* verb : {"job target", "job register", "tune"}) {
    EXPECT_THAT(RunWell(std::string("help ") + verb),
                Not(HasSubstr("repeated, as the other targets")));
  }
  EXPECT_THAT(RunWell("help plan"),
              AllOf(HasSubstr("as the other targets"), HasSubstr("that the profile has")));
  EXPECT_THAT(RunWell("help job register"), Not(HasSubstr("that the profile has")));
}

TEST_F(VerbsTest, AVerbThatHasOnlyPartsPrintsItsHelp) {
  for (const std::string verb : {"job", "gpu", "token"}) {
    EXPECT_EQ(RunWell(verb), RunWell(verb + " --help"));
  }
}

TEST_F(VerbsTest, SimilarVerbsAreSuggested) {
  for (const auto& [typed, meant] :
       {std::pair("plna", "plan"), {"plam", "plan"}, {"synht", "synth"}, {"shwo", "show"}}) {
    const std::string suggestion = std::string("did you mean ") + meant;
    ExpectComplaint(Run(typed), 2, suggestion);
    ExpectComplaint(Run(std::string(typed) + " --help"), 2, suggestion);
    ExpectComplaint(Run(std::string("help ") + typed), 2, suggestion);
  }
}

// The value of such a flag would be taken for a file that does not exist.
TEST_F(VerbsTest, AMisspelledFlagComesFirst) {
  ExpectComplaint(Run("plan --schdule 1f1b"), 2, "did you mean --schedule");
  ExpectComplaint(Run("plan absent.csv --schdule 1f1b"), 2, "did you mean --schedule");
  ExpectComplaint(Run("jbo shwo --json"), 2, "did you mean job");
  ExpectComplaint(Run("job shwo --json"), 2, "did you mean show");
}

// The first output is larger than a buffer, so writing fails before the program ends.
TEST_F(VerbsTest, AFullStandardOutputIsASystemFailure) {
  for (const char* arguments :
       {"synth --stages 64", "synth --stages 1", "completion bash", "plan --help", "--version"}) {
    ExpectComplaint(Run(std::string(arguments) + " >/dev/full"), 1, "standard output");
  }
  EXPECT_EQ(Run("plam 2>/dev/full").status, 2);
}

TEST_F(VerbsTest, CompletionIsAScript) {
  for (const std::string shell : {"completion bash", "completion zsh", "completion fish"}) {
    EXPECT_THAT(RunWell(shell), HasSubstr("made by: perseus " + shell));
    EXPECT_THAT(RunWell(shell + " -- plan =--b"), HasSubstr("\n--blocking-power"));
    EXPECT_THAT(RunWell(shell + " -- plan --schedule ="), HasSubstr("gpipe\n1f1b\n"));
    EXPECT_THAT(RunWell(shell + " -- completion ="), HasSubstr("bash\nzsh\nfish\n"));
    EXPECT_EQ(RunWell(shell + " -- plan -o ="), "");  // The shell offers files.
  }
  EXPECT_THAT(RunWell("completion fish -- ="), HasSubstr("\nshow\tShow plans side by side"));
  // bash loads the script and completes a flag, a choice and an argument.
  RunWell("completion bash > completion");
  Write("complete",
        "set -e\nPATH=${PERSEUS%/*}:$PATH\n. ./completion\nCOMP_WORDS=(perseus plan --slow) "
        "COMP_CWORD=2\n"
        "_perseus\n[[ ${COMPREPLY[*]} == --slowdown ]]\n"
        "COMP_WORDS=(perseus plan --schedule 1) COMP_CWORD=3\n"
        "_perseus\n[[ ${COMPREPLY[*]} == 1f1b ]]\n"
        "COMP_WORDS=(perseus completion f) COMP_CWORD=2\n"
        "_perseus\n[[ ${COMPREPLY[*]} == fish ]]\n"
        // Words: the parts of a verb, and their flags.
        "COMP_WORDS=(perseus job stragglers) COMP_CWORD=2\n"
        "_perseus\n[[ ${COMPREPLY[*]} == stragglers ]]\n"
        "COMP_WORDS=(perseus job register key --prof) COMP_CWORD=4\n"
        "_perseus\n[[ ${COMPREPLY[*]} == --profile ]]\n"
        "COMP_WORDS=(perseus help synt) COMP_CWORD=2\n"
        "_perseus\n[[ ${COMPREPLY[*]} == synth ]]\n");
  RunWell("completion bash >/dev/null; PERSEUS='" PERSEUS_PROGRAM "' bash complete");
}

}  // namespace
}  // namespace perseus
