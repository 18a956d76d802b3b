#pragma once
/// Marks of disturbed samples, for the probe and for blocks of ranks.

namespace mm {

/// Bits in the lines of samples; a share of marked samples becomes a flag of the result.
enum Mark : int {
  kMoved = 1,       ///< a thread changed its CPU
  kSwitched = 2,    ///< a thread waited for its CPU or was preempted
  kFaulted = 4,     ///< a thread had page faults
  kDisturbed = 16,  ///< the reference loop was slow before or after the sample
  kLate = 32,       ///< a rank missed the scheduled start
  kStolen = 64,     ///< a hypervisor took the CPU: the thread neither ran nor waited
};

}  // namespace mm
