#include "tests/control_plane/network.h"

#include <fmt/format.h>
#include <unistd.h>

#include <sstream>
#include <stdexcept>
#include <vector>

#include "perseus/base/process.h"

namespace perseus {
namespace {

// Runs `ip` with these words as arguments.
Result<std::string> Ip(const std::string& words) {
  std::vector<std::string> command{"ip"};
  std::istringstream stream(words);
  for (std::string word; stream >> word;) command.push_back(word);
  return RunProgram(command, "");
}

void MustIp(const std::string& words) {
  if (const auto ran = Ip(words); !ran) throw std::runtime_error(ran.error().Message());
}

// A number that separates the networks of tests that run at the same time.
int OwnNumber() { return static_cast<int>(getpid()); }

// Each machine has a /30 of 198.18.0.0/15, which is reserved for tests of networks (RFC 2544).
constexpr int kMostMachines = 4;
std::string AddressIn(int machine, int host) {
  constexpr int kNumbers = (1 << 15) / kMostMachines;
  const int at = (OwnNumber() % kNumbers * kMostMachines + machine) * 4 + host;
  return fmt::format("198.{}.{}.{}", 18 + (at >> 16), (at >> 8) & 255, at & 255);
}

}  // namespace

std::string Network::WhyNot() {
  const std::string probe = fmt::format("perseus{}probe", OwnNumber());
  const auto made = Ip("netns add " + probe);
  if (!made) return "no network namespaces: " + made.error().Message();
  const auto linked = Ip(fmt::format("link add pp{0}p type veth peer name pp{0}q netns {1}",
                                     OwnNumber() % 100'000, probe));
  (void)Ip("netns del " + probe);
  return linked ? "" : "no virtual cables: " + linked.error().Message();
}

Network::Network(int machines) : machines_(machines) {
  if (machines > kMostMachines) throw std::runtime_error("too many machines for one network");
  for (int machine = 0; machine < machines; ++machine) {
    const std::string name = Name(machine);
    const std::string address = Address(machine);
    const std::string gateway = Gateway(machine);
    MustIp("netns add " + name);
    MustIp(fmt::format("link add {0} type veth peer name eth0 netns {0}", name));
    MustIp(fmt::format("address add {}/30 dev {}", gateway, name));
    MustIp(fmt::format("-n {} address add {}/30 dev eth0", name, address));
    MustIp(fmt::format("-n {} link set lo up", name));
    MustIp(fmt::format("-n {} link set eth0 up", name));
    MustIp(fmt::format("link set {} up", name));
  }
}

Network::~Network() {
  for (int machine = 0; machine < machines_; ++machine) {
    (void)Ip("link delete " + Name(machine));
    (void)Ip("netns del " + Name(machine));
  }
}

std::string Network::Address(int machine) const { return AddressIn(machine, 2); }

std::string Network::Gateway(int machine) { return AddressIn(machine, 1); }

std::string Network::Inside(int machine) const {
  return fmt::format("{}", fmt::join(InsideWords(machine), " "));
}

std::vector<std::string> Network::InsideWords(int machine) const {
  return {"ip", "netns", "exec", Name(machine)};
}

// The other end of the cable goes down too, and so does the route. So connections from the test
// fail at once, as they do when a machine disappears. The addresses stay.
void Network::Cut(int machine) const {
  MustIp(fmt::format("-n {} link set eth0 down", Name(machine)));
}

void Network::Repair(int machine) const {
  MustIp(fmt::format("-n {} link set eth0 up", Name(machine)));
}

// The blackhole route drops what the machine sends, including its replies.
void Network::Silence(int machine) const {
  MustIp(fmt::format("-n {} route add blackhole {}/32", Name(machine), Gateway(machine)));
}

void Network::EndSilence(int machine) const {
  MustIp(fmt::format("-n {} route del blackhole {}/32", Name(machine), Gateway(machine)));
}

// An interface's name has at most 15 characters.
std::string Network::Name(int machine) const {
  return fmt::format("pp{}m{}", OwnNumber(), machine);
}

}  // namespace perseus
