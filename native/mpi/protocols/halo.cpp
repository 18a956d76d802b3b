#include "mpi/protocols/halo.hpp"

#include "base/error.hpp"

namespace mm::mpi {

std::vector<HaloProtocol> all_halos() {
  std::vector<HaloProtocol> protocols;
  for (const auto& group : {mpi_halos(), shmem_halos(), caf_halos()})
    protocols.insert(protocols.end(), group.begin(), group.end());
  return protocols;
}

std::vector<std::string> halo_choices() {
  std::vector<std::string> choices = {"all", "mpi", "shmem", "caf"};
  for (const HaloProtocol& p : all_halos()) choices.push_back(p.name);
  return choices;
}

std::vector<HaloProtocol> requested_halos(Run& run, const std::string& metric) {
  std::vector<HaloProtocol> protocols;
  for (const HaloProtocol& p : all_halos()) {
    if (!run.selects("protocol", {p.paradigm, p.name})) continue;
    if (p.make)
      protocols.push_back(p);
    else
      run.absent(metric, {{"paradigm", p.paradigm}, {"protocol", p.name}, {"mpi", World::get().kind()}},
                 p.name + ": " + p.missing);
  }
  return protocols;
}

RankGrid RankGrid::make(int dimensions) {
  std::vector<int> extent(static_cast<std::size_t>(dimensions), 0);
  check(MPI_Dims_create(World::get().size(), dimensions, extent.data()), "MPI_Dims_create");
  return of(extent);
}

RankGrid RankGrid::of(const std::vector<int>& extent) {
  RankGrid grid;
  grid.extent = extent;
  std::vector<int> coordinates(grid.extent.size());
  for (int remaining = World::get().rank(), d = grid.dimensions() - 1; d >= 0; --d) {
    const auto i = static_cast<std::size_t>(d);
    coordinates[i] = remaining % grid.extent[i];
    remaining /= grid.extent[i];
  }
  for (std::size_t d = 0; d < coordinates.size(); ++d)
    for (const int step : {-1, 1}) {
      std::vector<int> other = coordinates;
      other[d] = (other[d] + step + grid.extent[d]) % grid.extent[d];
      int rank = 0;
      for (std::size_t i = 0; i < other.size(); ++i) rank = rank * grid.extent[i] + other[i];
      grid.neighbour.push_back(rank);
    }
  return grid;
}

std::string RankGrid::name() const {
  std::string text;
  for (const int n : extent) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

}  // namespace mm::mpi
