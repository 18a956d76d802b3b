#pragma once
/// What disturbed a sample of the probe or a block of ranks.

namespace mm {

/// Bits, as lines of samples contain them; a share of marked samples becomes a flag of the result.
enum Mark : int {
  kMoved = 1,       ///< a thread changed its CPU
  kSwitched = 2,    ///< it waited for its CPU or was switched for another thread
  kFaulted = 4,     ///< it had page faults
  kSlowClock = 8,   ///< fixed work was slow before and after it: the clock
  kDisturbed = 16,  ///< fixed work was slow before or after it
  kLate = 32,       ///< a rank reached the start after the appointed time
  kStolen = 64,     ///< the CPU neither ran the thread nor let it wait: a hypervisor took it
};

}  // namespace mm
