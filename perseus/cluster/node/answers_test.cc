#include "perseus/cluster/node/answers.h"

#include <gtest/gtest.h>

namespace perseus::node {
namespace {

TEST(Answers, JobIsEmptyIfTheAnswerDoesNotNameIt) {
  EXPECT_EQ(JobOfAnswer(R"({"job":"j-1","more":1})"), "j-1");
  for (const char* body : {"", "{}", "[]", R"({"job":7})"}) EXPECT_EQ(JobOfAnswer(body), "");
}

}  // namespace
}  // namespace perseus::node
