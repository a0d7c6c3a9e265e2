// Other machines, as far as the network goes: namespaces, each at the end of a cable of its own.
#pragma once

#include <string>
#include <vector>

namespace perseus {

class Network {
 public:
  // Why there can be none here; empty if there can.
  static std::string WhyNot();

  explicit Network(int machines);  // Throws std::runtime_error.
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Of a machine, as this one reaches it.
  std::string Address(int machine) const;
  // Before a command that is to run there.
  std::string Inside(int machine) const;
  std::vector<std::string> InsideWords(int machine) const;
  // Pulls its cable, as seen from both ends, and puts it back.
  void Cut(int machine) const;
  void Repair(int machine) const;
  // Loses every packet of its, and neither end is told.
  void Silence(int machine) const;
  void EndSilence(int machine) const;

 private:
  std::string Name(int machine) const;
  // This machine, as that one reaches it.
  static std::string Gateway(int machine);

  int machines_;
};

}  // namespace perseus
