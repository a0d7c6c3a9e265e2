#include "perseus/planning/profile/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace perseus::profile {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Record = std::vector<std::string>;

// Returns all records, or the error as a single record.
std::vector<Record> Records(std::string_view text) {
  std::vector<Record> records;
  CsvReader reader(text, "f");
  while (true) {
    const Result<bool> next = reader.Next();
    if (!next) return {{next.error().Message()}};
    if (!*next) return records;
    records.emplace_back(reader.fields().begin(), reader.fields().end());
  }
}

TEST(CsvReader, SplitsFieldsAtCommasAndTrimsThem) {
  EXPECT_THAT(Records("a, b ,\tc\n1,,3"), ElementsAre(Record{"a", "b", "c"}, Record{"1", "", "3"}));
}

TEST(CsvReader, SkipsByteOrderMarkCarriageReturnsAndBlankLines) {
  EXPECT_THAT(Records("\xEF\xBB\xBF\r\na,b\r\n\r\n  \n1,2\r\n\n"),
              ElementsAre(Record{"a", "b"}, Record{"1", "2"}));
  EXPECT_THAT(Records(""), ElementsAre());
  EXPECT_THAT(Records(" \n\n"), ElementsAre());
}

TEST(CsvReader, FindsTheSeparatorInTheFirstLineWithText) {
  EXPECT_THAT(Records("# a, b\n\na; b\n1,5;2\n;\n\"x;y\" ; \n"),
              ElementsAre(Record{"a", "b"}, Record{"1,5", "2"}, Record{"x;y", ""}));
  EXPECT_THAT(Records("a\tb\n\t2\n\t\n\"x\ty\"\tz"),
              ElementsAre(Record{"a", "b"}, Record{"", "2"}, Record{"x\ty", "z"}));
  EXPECT_THAT(Records("one\n1;2"), ElementsAre(Record{"one"}, Record{"1;2"}));
}

TEST(CsvReader, SkipsCommentsAndRecordsWithoutAValue) {
  EXPECT_THAT(Records("#\" no quote\na,b\n , \n \"\",\"\"\n # c\n1,#2\n"),
              ElementsAre(Record{"a", "b"}, Record{"1", "#2"}));
}

TEST(CsvReader, QuotedFieldsMayContainCommasQuotesAndLineEnds) {
  EXPECT_THAT(Records("\"a,b\" , \"say \"\"x\"\"\",\"two\nlines\"\r\nplain,\"\"\n"),
              ElementsAre(Record{"a,b", "say \"x\"", "two\nlines"}, Record{"plain", ""}));
  // In a field that does not begin with a quote, a quote is a plain character.
  EXPECT_THAT(Records("5\" disk,\"x\"\n"), ElementsAre(Record{"5\" disk", "x"}));
}

TEST(CsvReader, CountsLinesInQuotedFieldsAndBlankLines) {
  CsvReader reader("\"a\nb\"\n\nc\n", "f");
  ASSERT_TRUE(*reader.Next());
  EXPECT_EQ(reader.line(), 1);
  ASSERT_TRUE(*reader.Next());
  EXPECT_EQ(reader.line(), 4);
  EXPECT_EQ(reader.Where(), InFile("f", 4));
}

TEST(CsvReader, ErrorsOfMisplacedQuotesHaveTheLine) {
  EXPECT_THAT(Records("a\n\"b\nc"),
              ElementsAre(ElementsAre(HasSubstr("f:2: a quoted field has no closing quote"))));
  EXPECT_THAT(Records("a\n\"b\"c"),
              ElementsAre(ElementsAre(HasSubstr("f:2: text follows a closing quote"))));
}

}  // namespace
}  // namespace perseus::profile
