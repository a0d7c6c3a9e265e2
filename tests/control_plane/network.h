// Simulates other machines on the network. Each machine is a network namespace with its own virtual
// cable.
#pragma once

#include <string>
#include <vector>

namespace perseus {

class Network {
 public:
  // The reason why this machine cannot create such a network. Empty if it can.
  static std::string WhyNot();

  explicit Network(int machines);  // Throws std::runtime_error.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // The address under which the test reaches that machine.
  std::string Address(int machine) const;
  // The prefix that makes a command run on that machine.
  std::string Inside(int machine) const;
  std::vector<std::string> InsideWords(int machine) const;
  // Cut unplugs the machine's cable, and both ends notice this. Repair plugs the cable in again.
  void Cut(int machine) const;
  void Repair(int machine) const;
  // Drops every packet from and to the machine. Neither end is notified.
  void Silence(int machine) const;
  void EndSilence(int machine) const;

 private:
  std::string Name(int machine) const;
  // The address under which that machine reaches the test.
  static std::string Gateway(int machine);

  int machines_;
};

}  // namespace perseus
