#pragma once
/// The policies that choose slots. Each returns the slots of a job, which it chooses among `among`, or nullopt if it
/// finds none.
#include <string>

#include "place/policy/view.hpp"

namespace mm::place::policy {

/// `oversubscribe`: the policy may use slots that other jobs hold.
Picked balance(const View& view, const std::vector<Index>& among, bool oversubscribe);
Picked pack(const View& view, const std::vector<Index>& among);
Picked any(const View& view, const std::vector<Index>& among);
Picked scatter(const View& view, const std::vector<Index>& among);
/// Minimizes the mean distance. `effort`: share of the search limit that it may use, if several sets of slots are
/// tried.
Picked compact(const View& view, const std::vector<Index>& among, double effort);
/// Minimizes the traffic-weighted distance, plus the contention of bandwidth-bound parts on one node.
Picked sharing(const View& view, const std::vector<Index>& among);

/// Returns the sets of slots to try, in order of distance from `near`: the nearest slots, these and the next nearest
/// ones, …; one set of all slots without `near`.
std::vector<std::vector<Index>> rings(const View& view);
/// Returns, for each node as the home of the job, the slots whose nodes are within the request's hops from it, without
/// sets that are too small and without repeats; one set of all slots without a limit.
std::vector<std::vector<Index>> within_hops(const View& view);

/// Applies the policy to the first set of slots where it succeeds. For compact, returns the best choice of all sets
/// within the hop limit.
Picked pick(const View& view, const std::string& policy);

}  // namespace mm::place::policy
