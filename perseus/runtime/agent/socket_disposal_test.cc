#include "perseus/runtime/agent/socket_disposal.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "perseus/runtime/protocol/messages/unix_socket.h"

namespace perseus::agent {
namespace {

struct SocketPair {
  FileDescriptor agent;
  FileDescriptor client;
};
SocketPair ConnectedPair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

bool SeesTheEnd(const FileDescriptor& client) {
  char byte = 0;
  return ::recv(client.get(), &byte, 1, MSG_DONTWAIT) == 0;
}

void TickUntilNoChild(SocketDisposal& disposal) {
  for (int i = 0; i < 1'000 && disposal.children() > 0; ++i) {
    ::usleep(5'000);
    disposal.Tick();
  }
}

TEST(SocketDisposal, ThePeerSeesTheEndAtOnceAndAChildCloses) {
  SocketDisposal disposal;
  disposal.AssumeDescriptors();
  SocketPair first = ConnectedPair();
  SocketPair second = ConnectedPair();
  disposal.Close(std::move(first.agent));
  disposal.Close(std::move(second.agent));
  EXPECT_TRUE(SeesTheEnd(first.client));
  EXPECT_TRUE(SeesTheEnd(second.client));
  EXPECT_EQ(disposal.waiting(), 2U);
  disposal.Tick();
  EXPECT_EQ(disposal.waiting(), 0U);
  EXPECT_EQ(disposal.children(), 1U) << "one child closes both";
  TickUntilNoChild(disposal);
  EXPECT_EQ(disposal.children(), 0U);
}

// The write end of a pipe is in the socket's queue. The pipe ends when the last copy is closed.
TEST(SocketDisposal, WhatThePeerSentIsClosedInTheChild) {
  SocketDisposal disposal;
  disposal.AssumeDescriptors();
  SocketPair pair = ConnectedPair();
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const FileDescriptor reading(pipe_ends[0]);
  {
    const FileDescriptor writing(pipe_ends[1]);
    ASSERT_TRUE(protocol::Send(pair.client.get(), "x", {writing.get()}));
  }
  pollfd ended{reading.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 0), 0) << "the queue holds the pipe";
  disposal.Close(std::move(pair.agent));
  disposal.Tick();
  EXPECT_EQ(::poll(&ended, 1, 10'000), 1) << "the child has closed it";
  TickUntilNoChild(disposal);
}

TEST(SocketDisposal, AnEmptyDescriptorIsIgnored) {
  SocketDisposal disposal;
  disposal.AssumeDescriptors();
  disposal.Close(FileDescriptor());
  EXPECT_EQ(disposal.waiting(), 0U);
}

}  // namespace
}  // namespace perseus::agent
