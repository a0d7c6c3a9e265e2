#include "perseus/cluster/server/identity/operator_token.h"

#include <gmock/gmock.h>

#include "perseus/cluster/server/identity/rights.h"
#include "tests/support/temporary_directory.h"

namespace perseus::server {
namespace {

TEST(OperatorToken, IsValidAtAServerWithTheDatabase) {
  const TemporaryDirectory directory;
  const std::string database = "sqlite:" + (directory / "first.db").string();
  EXPECT_THAT(CreateOperatorToken(database, "two\nlines").error().Message(),
              testing::HasSubstr("is not a name"));
  const auto token = CreateOperatorToken(database, "ann");
  ASSERT_TRUE(token) << token.error().Message();

  const auto store = store::OpenStore(database);
  ASSERT_TRUE(store) << store.error().Message();
  Rights rights(Rights::WithoutTokens::kClosed);
  ASSERT_TRUE(rights.Load(**store));
  http::Request request;
  request.fields["authorization"] = "Bearer " + token->secret;
  const auto identity = rights.Identify(request, token->record.created);
  ASSERT_TRUE(identity);
  EXPECT_EQ(identity->role, Identity::Role::kOperator);
  EXPECT_EQ(identity->name, "ann");
}

}  // namespace
}  // namespace perseus::server
