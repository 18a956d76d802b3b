#pragma once
/// Products of rings: the differences between their cells, by kind.
#include <vector>

#include "place/search/choice.hpp"

namespace mm::place::search {

/// Cells as a product of rings, row by row, and the distances of their differences.
struct Torus {
  std::vector<std::size_t> lengths;
  std::vector<std::size_t> of;     // kind of difference of each cell from cell 0
  std::vector<std::size_t> first;  // a cell of each kind
  std::vector<double> times;       // cells of each kind
  std::vector<double> distance;    // distance of each kind; [0]: two units of one cell
  double sum = 0;                  // sum of the distances over the pairs of cells that were examined
};

std::vector<std::size_t> digits(std::size_t cell, const std::vector<std::size_t>& lengths);
std::size_t number(const std::vector<std::size_t>& at, const std::vector<std::size_t>& lengths);
/// Returns a torus whose kinds of differences ignore signs and, with `swaps`, also the order of equally long
/// dimensions.
Torus torus_of(std::vector<std::size_t> lengths, bool swaps);

/// Sets the minimum distance of each kind between cells of a grid that lies in the torus, using every `step`-th row;
/// `sum` is the total of these distances over the rows.
void measure(Torus& torus, const std::vector<std::size_t>& lengths, const std::vector<std::vector<Value>>& weight,
             std::size_t step);

}  // namespace mm::place::search
