#include "perseus/cluster/node/mailbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>

namespace perseus::node {
namespace {

http::Event EventOf(std::size_t bytes) {
  return {.name = "assignment", .data = std::string(bytes, 'x')};
}

TEST(Mailbox, HoldsALimitedNumberOfBytes) {
  Mailbox mailbox(10'000);
  std::atomic<int> put = 0;
  std::thread flood([&] {
    for (int i = 0; i < 100; ++i) {
      mailbox.Put(EventOf(4'000));
      ++put;
    }
  });
  int taken = 0;
  std::size_t most = 0;
  while (taken < 100) {
    const std::size_t now = mailbox.TakeAll().size();
    most = std::max(most, now);
    taken += static_cast<int>(now);
  }
  flood.join();
  EXPECT_EQ(put, 100);
  EXPECT_LE(most, 2U);
}

TEST(Mailbox, TakesALargeEventWhenItIsEmpty) {
  Mailbox mailbox(10'000);
  mailbox.Put(EventOf(1'000'000));
  EXPECT_EQ(mailbox.TakeAll().size(), 1U);
}

// The node ends although its mailbox is full.
TEST(Mailbox, CloseEndsPut) {
  Mailbox mailbox(10'000);
  mailbox.Put(EventOf(9'000));
  std::thread waits([&] { mailbox.Put(EventOf(9'000)); });
  mailbox.Close();
  waits.join();
  EXPECT_EQ(mailbox.TakeAll().size(), 1U);
}

}  // namespace
}  // namespace perseus::node
