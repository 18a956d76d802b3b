#pragma once
/// Policies: which CPUs a job gets. Exact semantics, sources and examples: docs/reference/policies.md.
#include <string>
#include <vector>

#include "types.hpp"

namespace mm::place {

/// Reads `POLICY[,MODIFIER…]`: `balance`, `pack`, `any`, `none`, `compact`, `scatter`, `sharing`, `list=0-3,8` (or a
/// bare CPU list; a list's commas belong to it), with `near=DEVICE`, `distance<=D`, `exclude`, and what LSF calls them
/// (Y, N, NONE, BALANCE, PACK, ANY, in any case). Into `request`, whose other fields stay. UsageError names the word.
void parse_bind(const std::string& text, Request& request);
SlotKind parse_slot_kind(const std::string& field, const std::string& text);
std::string name(SlotKind kind);
const std::vector<std::pair<std::string, std::string>>& policies();   ///< name, one line of help
const std::vector<std::pair<std::string, std::string>>& modifiers();  ///< what may follow a policy

/// From a JSON file {"traffic": [[…]], "hunger": […]}; one of the two may be left out. UsageError names what is wrong.
Sharing read_sharing(const std::string& file);

/// The slots of a machine among the CPUs `within`, in order of package, core, thread: each the CPUs of a socket, core
/// or thread, ascending. CPUs that are not `within` are left out of a slot, and empty slots are none.
std::vector<std::vector<int>> slots_of(const Machine& machine, SlotKind kind, const std::vector<int>& within);

/// Where a job goes. UsageError: more slots than exist, a list outside the allowed set, a policy with a list that
/// contradicts it, unknown device. Busy: it would fit an empty machine, but others hold too much.
Placement place(const Machine& machine, const Request& request, const Occupancy& taken);

/// Adds a job to what is taken.
void occupy(Occupancy& taken, const Placement& placement, bool exclusive);

/// meshmark-place plan …
int plan_verb(int argc, char** argv);

}  // namespace mm::place
