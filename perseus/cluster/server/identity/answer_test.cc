#include "perseus/cluster/server/identity/answer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::server {
namespace {

using json_file::Node;
using ::testing::HasSubstr;

// Reads a body such as {"list": [{"known": 1}]}.
Answer<int> ReadThing(std::string_view body) {
  return ReadBody(body, 4, [](const Node& node) {
    node.RequireObject({"list"});
    const Node list = node.Member("list");
    for (std::size_t i = 0; i < list.ListSize(); ++i) {
      list[i].RequireObject({"known"});
      list[i].Member("known").Count(0, 9, "a digit");
    }
    return static_cast<int>(list.ListSize());
  });
}

struct BadBody {
  const char* name;
  const char* text;
  const char* pointer;
  const char* says;
};
class BadBodyTest : public testing::TestWithParam<BadBody> {};
INSTANTIATE_TEST_SUITE_P(
    Rows, BadBodyTest,
    testing::Values(BadBody{"Value", R"({"list": [{"known": 1}, {"known": 10}]})", "/list/1/known",
                            "from 0 to 9"},
                    BadBody{"Missing", R"({"list": [{}]})", "/list/0/known", "is missing"},
                    BadBody{"UnknownKey", R"({"foo": 1})", "/foo", "no key \"foo\""},
                    BadBody{"UnknownKeyWithin", R"({"list": [{"known": 1, "a/b~c.d": 1}]})",
                            "/list/0/a~1b~0c.d", "no key"},
                    BadBody{"KeyTwice", R"({"list": [], "list": []})", "/list", "appears twice"},
                    BadBody{"KeyTwiceWithin", R"({"list": [{}, {"x.y": {"z": {}, "z": 1}}]})",
                            "/list/1/x.y/z", "appears twice"},
                    BadBody{"Overflow", R"({"list": [{"known": 1}, {"known": 1e400}]})",
                            "/list/1/known", "number overflow"},
                    BadBody{"TooDeep", R"({"list": [[[[[1]]]]]})", "", "nested too deeply"},
                    BadBody{"NotUtf8",
                            "{\"list\": [{\"known\": \"a long text, \xff and on and on and on\"}]}",
                            "", "not JSON: a text is not UTF-8"}),
    [](const auto& row) { return std::string(row.param.name); });

TEST_P(BadBodyTest, IsRefusedWithThePlaceOfTheMistake) {
  const auto read = ReadThing(GetParam().text);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().status, 400);
  EXPECT_EQ(read.error().pointer, GetParam().pointer);
  EXPECT_THAT(read.error().detail, HasSubstr(GetParam().says));
  EXPECT_FALSE(read.error().remedy.empty());
}

// A value of two bytes takes 100 bytes of memory.
TEST(Bodies, HaveALimitedNumberOfValues) {
  std::string text = R"({"list": [)";
  for (std::size_t i = 0; i < kMaxBodyValues; ++i) text += "[],";
  text.back() = ']';
  const auto read = ReadThing(text + "}");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().status, 400);
  EXPECT_THAT(read.error().detail, HasSubstr("more than 400000 values"));
  EXPECT_EQ(read.error().remedy, "send less");
}

// Objects in a list must not take longer than other values. Otherwise other requests would have to
// wait for one body.
TEST(Bodies, WithTheMaximumOfObjectsAreReadQuickly) {
  std::string text = R"({"list": [)";
  for (std::size_t i = 0; i + 2 < kMaxBodyValues; ++i) text += "{},";
  text.back() = ']';
  const auto read = ReadThing(text + "}");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().pointer, "/list/0/known");
}

TEST(Problems, OfImpossibleRequestsSayWhatToDo) {
  const auto problem =
      ProblemOf(Error{"no plan keeps to 1 W: the least is 5 W", ErrorKind::kUnreachable});
  EXPECT_EQ(problem.status, 422);
  EXPECT_THAT(problem.detail, HasSubstr("the least is 5 W"));
  EXPECT_EQ(problem.remedy, "request a value that is possible");
}

}  // namespace
}  // namespace perseus::server
