#pragma once
/// The policies that choose slots. Each looks for a job's slots among those given, and yields none if it finds none.
#include <string>

#include "view.hpp"

namespace mm::place::policy {

/// `oversubscribe`: may take slots that other jobs hold.
Picked balance(const View& view, const std::vector<Index>& among, bool oversubscribe);
Picked pack(const View& view, const std::vector<Index>& among);
Picked any(const View& view, const std::vector<Index>& among);
Picked scatter(const View& view, const std::vector<Index>& among);
/// Minimal mean distance. `effort`: its share of the search limit, if it is one of several sets of slots.
Picked compact(const View& view, const std::vector<Index>& among, double effort);
/// Minimal traffic-weighted distance plus contention of bandwidth-bound parts on one node.
Picked sharing(const View& view, const std::vector<Index>& among);

/// Sets of slots to try in turn, by distance from `near`: the nearest, those and the next nearest, …; all without it.
std::vector<std::vector<Index>> rings(const View& view);
/// Sets of slots whose nodes are no farther apart than the request's limit; all slots without a limit.
/// `complete`: whether these are all such sets.
std::vector<std::vector<Index>> within_hops(const View& view, bool& complete);

/// The policy on the first set of slots where it finds a place; for compact, the best of all sets in the hop limit.
Picked pick(const View& view, const std::string& policy);

}  // namespace mm::place::policy
