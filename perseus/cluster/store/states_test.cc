#include "perseus/cluster/store/states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace perseus::store {
namespace {

using ::testing::ElementsAre;

// Returns the words of all states. Checks that each word is read back as the state that it names.
template <typename State>
std::vector<std::string_view> WordsOf() {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < kWordsOf<State>.size(); ++i) {
    const auto state = static_cast<State>(i);
    words.push_back(Name(state));
    EXPECT_EQ(Parse<State>(Name(state)), state);
  }
  EXPECT_FALSE(Parse<State>(""));
  EXPECT_FALSE(Parse<State>("another"));
  return words;
}

// Existing databases contain these words.
TEST(States, HaveTheWordsOfTheDatabase) {
  EXPECT_THAT(WordsOf<JobStatus>(), ElementsAre("waiting", "planned", "failed"));
  EXPECT_THAT(WordsOf<StragglerSource>(), ElementsAre("detected", "forecast", "report"));
  EXPECT_THAT(WordsOf<StragglerEnd>(), ElementsAre("replaced", "withdrawn", "expired"));
  EXPECT_THAT(WordsOf<GuardState>(), ElementsAre("trial", "withdrawn", "cleared"));
  EXPECT_THAT(WordsOf<Scope>(), ElementsAre("operator", "member", "agent", "job", "read", "join"));
  EXPECT_EQ(Name(JobStatus::kFailed), "failed");
  EXPECT_EQ(Name(StragglerSource::kReport), "report");
  EXPECT_EQ(Name(StragglerEnd::kExpired), "expired");
  EXPECT_EQ(Name(GuardState::kCleared), "cleared");
  EXPECT_EQ(Name(Scope::kJoin), "join");
}

}  // namespace
}  // namespace perseus::store
