#include "perseus/runtime/protocol/messages/unix_socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <fstream>
#include <thread>

#include "perseus/runtime/protocol/messages/messages.h"
#include "tests/support/results.h"
#include "tests/support/temporary_directory.h"

namespace perseus::protocol {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout(20);  // For replies that do arrive.

class UnixSocket : public ::testing::Test {
 protected:
  fs::path path() const { return directory_ / "agent.sock"; }

 private:
  TemporaryDirectory directory_;
};

// A connection. The agent's end is non-blocking, and the client's end is blocking.
struct Pair {
  FileDescriptor agent;
  FileDescriptor client;
};
Pair Connection() {
  int ends[2] = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_EQ(::fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

int DescriptorsOpen() {
  const fs::directory_iterator all("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Sends a text with any number of descriptors, as a foreign client can.
bool SendRaw(int socket, std::string_view text, const std::vector<int>& descriptors) {
  const std::size_t size = sizeof(int) * descriptors.size();
  std::vector<std::max_align_t> control(CMSG_SPACE(size) / sizeof(std::max_align_t) + 1);
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(size);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(size);
  std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

// ---- Listening and connecting ----

TEST_F(UnixSocket, ReportsTheCredentialsOfAClient) {
  const auto listener = ValueOf(Listen(path(), 0600));
  EXPECT_FALSE(ValueOf(Accept(listener.get())));

  const auto client = ValueOf(Connect(path()));
  const auto agent = Accept(listener.get());
  ASSERT_TRUE(agent && *agent);
  const auto peer = ValueOf(PeerOf(agent->get()));
  EXPECT_EQ(peer.pid, ::getpid());
  EXPECT_EQ(peer.uid, ::geteuid());
  EXPECT_EQ(peer.gid, ::getegid());

  ASSERT_TRUE(Send(client.get(), "one"));
  ASSERT_TRUE(Send(client.get(), "two"));
  EXPECT_EQ(Receive(agent->get())->datagram.text, "one");
  EXPECT_EQ(Receive(agent->get())->datagram.text, "two");
  EXPECT_EQ(Receive(agent->get())->state, Received::kNothing);
}

TEST_F(UnixSocket, PermissionsDoNotDependOnTheUmask) {
  for (const mode_t mode : {mode_t{0600}, mode_t{0660}, mode_t{0666}}) {
    const mode_t before = ::umask(0137);
    const auto listener = Listen(path(), mode);
    ::umask(before);
    ASSERT_TRUE(listener) << listener.error().Message();
    struct stat status {};
    ASSERT_EQ(::stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, mode);
  }
}

TEST_F(UnixSocket, ARunningAgentKeepsItsSocket) {
  const auto listener = Listen(path(), 0600);
  ASSERT_TRUE(listener) << listener.error().Message();
  EXPECT_THAT(Listen(path(), 0600),
              FailsAs(ErrorKind::kSystem,
                      HasSubstr(path().string() + ": another process already listens there")));
  EXPECT_TRUE(Connect(path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(path().parent_path()), {}), 1);
}

TEST_F(UnixSocket, TheSocketOfADeadAgentIsReplaced) {
  ASSERT_TRUE(Listen(path(), 0600));  // The socket is closed at once, but the file stays.
  ASSERT_TRUE(fs::exists(path()));
  EXPECT_THAT(Connect(path()), FailsWith(HasSubstr("Connection refused (is the agent running")));
  const auto listener = Listen(path(), 0600);
  ASSERT_TRUE(listener) << listener.error().Message();
  EXPECT_TRUE(Connect(path()));
  EXPECT_EQ(std::distance(fs::directory_iterator(path().parent_path()), {}), 1);
}

// For some time, a child that the agent forked before its end has a copy of the socket.
TEST_F(UnixSocket, TheSocketOfADeadAgentWithAChildIsReplaced) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t agent = ::fork();
  if (agent == 0) {
    ::close(ends[1]);
    const auto listener = Listen(path(), 0600);
    if (::fork() == 0) {  // The child lives until the test closes the pipe.
      char byte = 0;
      (void)!::read(ends[0], &byte, 1);
    }
    ::_exit(listener ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(agent, &status, 0), agent);
  ASSERT_EQ(status, 0);
  ASSERT_TRUE(Connect(path()));
  const auto listener = Listen(path(), 0600);
  EXPECT_TRUE(listener) << listener.error().Message();
  ::close(ends[0]);
  ::close(ends[1]);
}

// An agent was killed after it created its socket and before it renamed the socket.
TEST_F(UnixSocket, AnIncompleteSocketOfADeadAgentIsRemoved) {
  constexpr pid_t kDead = (1 << 22) + 1;  // Above the largest process number of Linux.
  const fs::path of_dead = path().native() + "." + std::to_string(kDead);
  const fs::path of_living = path().native() + "." + std::to_string(::getppid());
  for (const fs::path& left : {of_dead, of_living}) {
    const auto listener = Listen(left, 0666);
    ASSERT_TRUE(listener) << listener.error().Message();
  }
  ASSERT_TRUE(Listen(path(), 0666));
  EXPECT_FALSE(fs::exists(of_dead));
  EXPECT_TRUE(fs::exists(of_living));
}

TEST_F(UnixSocket, AFileThatIsNoSocketIsNotReplaced) {
  std::ofstream(path()) << "precious";
  EXPECT_THAT(Listen(path(), 0600),
              FailsAs(ErrorKind::kSystem, HasSubstr("exists and is not a socket")));
  EXPECT_TRUE(fs::is_regular_file(path()));
}

TEST_F(UnixSocket, FailuresNameThePathAndTheRemedy) {
  EXPECT_THAT(
      Connect(path()),
      FailsAs(ErrorKind::kSystem,
              path().string() +
                  ": cannot connect: No such file or directory (is the agent running, and is this "
                  "its socket?)"));

  EXPECT_THAT(Listen(path() / "below" / "x", 0600),
              FailsAs(ErrorKind::kSystem, HasSubstr("below")));

  const fs::path far = path().string() + std::string(100, 'x');
  for (const Error& error : {Listen(far, 0600).error(), Connect(far).error()}) {
    EXPECT_EQ(error.kind, ErrorKind::kInput);
    EXPECT_THAT(error.Message(), HasSubstr("choose a shorter one"));
  }
  EXPECT_FALSE(Listen("", 0600));
  EXPECT_FALSE(Connect(""));
}

TEST_F(UnixSocket, AStreamSocketBelongsToAnotherProgram) {
  const FileDescriptor other(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path().c_str());
  ASSERT_EQ(::bind(other.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(other.get(), 1), 0);
  EXPECT_THAT(Listen(path(), 0600).error().Message(), HasSubstr("already listens"));
  EXPECT_THAT(Connect(path()).error().Message(), HasSubstr("the socket of another program"));
}

// ---- Datagrams ----

TEST(UnixSocketDatagram, ArrivesWholeUpToTheMaximumLength) {
  const Pair pair = Connection();
  const std::string longest(kLongestMessage, 'x');
  ASSERT_TRUE(Send(pair.client.get(), longest));
  EXPECT_EQ(ValueOf(Receive(pair.agent.get())).datagram.text, longest);
}

TEST(UnixSocketDatagram, RefusesToSendTooLongOrEmptyMessages) {
  const Pair pair = Connection();
  for (const std::string& text : {std::string(), std::string(kLongestMessage + 1, 'x')}) {
    EXPECT_THAT(Send(pair.client.get(), text), FailsAs(ErrorKind::kInput));
  }
  EXPECT_FALSE(Send(pair.client.get(), "x", std::vector<int>(kMostGpus + 2, 0)));
  EXPECT_EQ(Receive(pair.agent.get())->state, Received::kNothing);
}

TEST(UnixSocketDatagram, TooLongIsAnErrorAndTheNextIsStillRead) {
  const Pair pair = Connection();
  const std::string text(kLongestMessage + 1, 'x');
  ASSERT_EQ(::send(pair.client.get(), text.data(), text.size(), 0), ssize_t(text.size()));
  ASSERT_TRUE(Send(pair.client.get(), "next"));
  EXPECT_THAT(Receive(pair.agent.get()), FailsAs(ErrorKind::kInput));
  EXPECT_EQ(Receive(pair.agent.get())->datagram.text, "next");
}

TEST(UnixSocketDatagram, ReportsTheEndOfThePeer) {
  Pair pair = Connection();
  pair.client = FileDescriptor();
  EXPECT_EQ(Receive(pair.agent.get())->state, Received::kEnd);
  const auto sent = Send(pair.agent.get(), "x");  // This must not raise SIGPIPE.
  EXPECT_THAT(sent, FailsAs(ErrorKind::kSystem, HasSubstr("the other end is gone")));
}

// The client left a message unread, so the agent sees a reset instead of a plain end.
TEST(UnixSocketDatagram, APeerThatLeftWithoutReadingIsGone) {
  Pair pair = Connection();
  ASSERT_TRUE(Send(pair.agent.get(), "unread"));
  pair.client = FileDescriptor();
  EXPECT_EQ(ValueOf(Receive(pair.agent.get())).state, Received::kEnd);
}

TEST(UnixSocketDatagram, APeerThatDoesNotReadIsAnErrorForTheAgent) {
  const Pair pair = Connection();
  Result<void> sent;
  for (int i = 0; i < 10'000 && sent; ++i) sent = Send(pair.agent.get(), "again");
  EXPECT_THAT(sent, FailsAs(ErrorKind::kSystem, HasSubstr("does not read")));
}

// The kernel reports once that the peer has closed its socket with an unread answer. Despite this
// report, nothing may be taken out of the queue unseen.
TEST(UnixSocketDatagram, TheAgentLeavesDescriptorsOfAPeerThatHasClosed) {
  Pair pair = Connection();
  ASSERT_TRUE(Send(pair.agent.get(), "unread"));
  ASSERT_TRUE(Send(pair.client.get(), "without"));
  ASSERT_TRUE(SendRaw(pair.client.get(), "with", {0}));
  pair.client = FileDescriptor();
  EXPECT_EQ(ValueOf(Receive(pair.agent.get())).datagram.text, "without");
  EXPECT_EQ(Receive(pair.agent.get())->state, Received::kDescriptors);

  Pair other = Connection();
  ASSERT_TRUE(Send(other.agent.get(), "unread"));
  ASSERT_TRUE(SendRaw(other.client.get(), "with", {0}));
  other.client = FileDescriptor();
  EXPECT_EQ(Receive(other.agent.get())->state, Received::kDescriptors);
}

// Taking such a datagram out of the queue would close its descriptors, and closing may block.
TEST(UnixSocketDatagram, TheAgentLeavesDescriptorsInTheQueue) {
  for (const std::size_t count : {std::size_t{1}, std::size_t{65}, std::size_t{253}}) {
    const Pair pair = Connection();
    const int before = DescriptorsOpen();
    ASSERT_TRUE(Send(pair.client.get(), "without"));
    ASSERT_TRUE(SendRaw(pair.client.get(), "with", std::vector<int>(count, 0)));
    EXPECT_EQ(Receive(pair.agent.get())->datagram.text, "without");
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(ValueOf(Receive(pair.agent.get())).state, Received::kDescriptors) << count;
    }
    EXPECT_EQ(DescriptorsOpen(), before) << count;
  }
}

// ---- Requests and answers ----

// Answers one request like the agent.
std::thread Answering(const Pair& pair, const std::string& reply,
                      const std::vector<int>& descriptors) {
  return std::thread([&pair, reply, descriptors] {
    pollfd wanted{pair.agent.get(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    EXPECT_EQ(Receive(pair.agent.get())->datagram.text, "question");
    EXPECT_TRUE(SendRaw(pair.agent.get(), reply, descriptors));
  });
}

TEST(UnixSocketAsk, ReceivesTheReplyWithItsDescriptors) {
  const Pair pair = Connection();
  const FileDescriptor event(::eventfd(7, EFD_CLOEXEC));
  std::thread agent = Answering(pair, "answer", std::vector<int>(1 + kMostGpus, event.get()));
  const auto reply = SendRequest(pair.client.get(), "question", kTimeout);
  agent.join();
  ASSERT_TRUE(reply) << reply.error().Message();
  EXPECT_EQ(reply->text, "answer");
  ASSERT_EQ(reply->descriptors.size(), std::size_t{1 + kMostGpus});
  for (const FileDescriptor& fd : reply->descriptors) {
    EXPECT_EQ(::fcntl(fd.get(), F_GETFD), FD_CLOEXEC);
  }
  eventfd_t count = 0;
  EXPECT_EQ(::eventfd_read(reply->descriptors.back().get(), &count), 0);
  EXPECT_EQ(count, 7U);
}

TEST(UnixSocketAsk, MoreDescriptorsThanAChannelHasAreClosed) {
  const Pair pair = Connection();
  const int before = DescriptorsOpen();
  std::thread agent = Answering(pair, "answer", std::vector<int>(2 + kMostGpus, 0));
  const auto reply = SendRequest(pair.client.get(), "question", kTimeout);
  agent.join();
  EXPECT_THAT(reply, FailsAs(ErrorKind::kInput));
  EXPECT_EQ(DescriptorsOpen(), before);
}

TEST(UnixSocketAsk, NoReplyIsAnErrorAfterTheTimeout) {
  const Pair pair = Connection();
  EXPECT_THAT(SendRequest(pair.client.get(), "question", std::chrono::milliseconds(0)),
              FailsAs(ErrorKind::kSystem, HasSubstr("did not answer within 0 ms")));
}

TEST(UnixSocketAsk, AnAgentThatEndsIsAnError) {
  Pair pair = Connection();
  pair.agent = FileDescriptor();
  EXPECT_THAT(SendRequest(pair.client.get(), "question", kTimeout), FailsAs(ErrorKind::kSystem));

  Pair other = Connection();
  std::thread agent([&] {
    pollfd wanted{other.agent.get(), POLLIN, 0};
    ::poll(&wanted, 1, -1);
    other.agent = FileDescriptor();
  });
  const auto closed = SendRequest(other.client.get(), "question", kTimeout);
  agent.join();
  EXPECT_THAT(closed, FailsAs(ErrorKind::kSystem, HasSubstr("the agent closed the connection")));
}

// From Linux 6.16 on, the kernel itself refuses descriptors that clients send to the agent.
TEST_F(UnixSocket, TheKernelRefusesDescriptorsWhereItCan) {
  const auto listener = ValueOf(Listen(path(), 0600));
  const auto client = Connect(path());
  const auto agent = Accept(listener.get());
  ASSERT_TRUE(client && agent && *agent);
  constexpr int kPassRights = 83;  // Linux 6.16.
  int passes = 1;
  socklen_t size = sizeof passes;
  if (::getsockopt(agent->get(), SOL_SOCKET, kPassRights, &passes, &size) != 0) {
    GTEST_SKIP() << "this kernel cannot (SO_PASSRIGHTS, Linux 6.16)";
  }
  EXPECT_EQ(passes, 0);
  EXPECT_TRUE(RefusesDescriptors(agent->get()));
  EXPECT_FALSE(RefusesDescriptors(client->get()));
  EXPECT_FALSE(SendRaw(client->get(), "take this", {0}));
  EXPECT_TRUE(SendRaw(agent->get(), "take this", {0}));
}

}  // namespace
}  // namespace perseus::protocol
