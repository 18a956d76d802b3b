#pragma once
/// The policies that choose slots. Each returns the slots of a job among the given ones, or nothing if it finds none.
#include <string>

#include "view.hpp"

namespace mm::place::policy {

/// `oversubscribe`: may use slots that other jobs hold.
Picked balance(const View& view, const std::vector<Index>& among, bool oversubscribe);
Picked pack(const View& view, const std::vector<Index>& among);
Picked any(const View& view, const std::vector<Index>& among);
Picked scatter(const View& view, const std::vector<Index>& among);
/// Minimal mean distance. `effort`: its share of the search limit, if several sets of slots are tried.
Picked compact(const View& view, const std::vector<Index>& among, double effort);
/// Minimal traffic-weighted distance, plus contention of bandwidth-bound parts on one node.
Picked sharing(const View& view, const std::vector<Index>& among);

/// Sets of slots to try in order of distance from `near`: the nearest, these and the next nearest, …; all slots without
/// it.
std::vector<std::vector<Index>> rings(const View& view);
/// Sets of slots whose nodes are within the request's distance limit; all slots without a limit. `complete`: whether
/// these are all such sets.
std::vector<std::vector<Index>> within_hops(const View& view, bool& complete);

/// Applies the policy to the first set of slots where it succeeds; for compact, the best of all sets within the hop
/// limit.
Picked pick(const View& view, const std::string& policy);

}  // namespace mm::place::policy
