#pragma once
/// Policies: which CPUs a job gets. docs/reference/policies.md defines them, with sources and examples.
#include <string>
#include <vector>

#include "place/types.hpp"

namespace mm::place {

/// Parses `POLICY[,MODIFIER…]` into `request`, whose other fields do not change: `balance`, `pack`, `any`, `none`,
/// `compact`, `scatter`, `sharing`, `list=0-3,8` (or a bare CPU list, including its commas), with `near=DEVICE`,
/// `distance<=D`, `kind=KIND`, `exclude`; also LSF's names (Y, N, NONE, BALANCE, PACK, ANY, in any case). Throws
/// UsageError with the invalid part.
void parse_bind(const std::string& text, Request& request);
SlotKind parse_slot_kind(const std::string& field, const std::string& text);
std::string name(SlotKind kind);
const std::vector<std::pair<std::string, std::string>>& policies();   ///< name, one line of help
const std::vector<std::pair<std::string, std::string>>& modifiers();  ///< names and help of modifiers

/// Reads a JSON file {"traffic": [[…]], "bandwidth_demand": […]}; either key may be missing. Throws UsageError with the
/// error.
PartDemands read_sharing(const std::string& file);

/// Returns the slots of a machine among the CPUs `within`, in order of package, core, thread. Each slot contains the
/// CPUs of a socket, core or thread, ascending. CPUs outside `within` and empty slots are left out.
std::vector<std::vector<int>> slots_of(const Machine& machine, SlotKind kind, const std::vector<int>& within);

/// Places a job. Throws UsageError for more slots than exist, a list outside the allowed set, a policy that contradicts
/// a list, or an unknown device; Busy if it would fit an empty machine, but other jobs hold too much.
Placement place(const Machine& machine, const Request& request, const Occupancy& taken);

/// Adds a job to the occupancy.
void occupy(Occupancy& taken, const Placement& placement, bool exclusive);

/// meshmark-place plan …
int plan_verb(int argc, char** argv);

}  // namespace mm::place
