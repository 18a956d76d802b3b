#pragma once
/// Lets one runner at a time work for each name of a node.
#include <string>

namespace mm::node {

/// One process of a host holds a turn at a time, until its last child has ended. A campaign that lost track of a job,
/// because the head node was restarted or a connection broke, may start a second runner beside the first.
class Turn {
 public:
  /// Waits until no other process has the turn of this name. Throws Failure after `limit_s`.
  Turn(const std::string& name, double limit_s);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  int socket_;
};

}  // namespace mm::node
