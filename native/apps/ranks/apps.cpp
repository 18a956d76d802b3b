#include "apps/ranks/apps.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "mpi/messages/message.hpp"
#include "mpi/reductions/reduction.hpp"

namespace mm::mpi {

Case planned_case(const std::string& metric, const HaloProtocol& protocol, const json& more) {
  Case c;
  c.metric = metric;
  c.conditions = {{"paradigm", protocol.paradigm}, {"protocol", protocol.name}};
  c.conditions.update(more);
  return c;
}

std::vector<Metric> compute_metrics() {
  return {{"compute_time", "time of a step outside of messages, mean over ranks", "s", Better::lower},
          {"imbalance", "maximum compute time of any rank over the mean", "1", Better::lower}};
}

Case program_case(const std::shared_ptr<MiniApplication>& program, const std::vector<double>& delays,
                  const std::shared_ptr<std::vector<Values>>& values_by_block) {
  Case c;
  c.conditions = program->conditions();
  c.metric = program->metric();
  c.share = 1 / program->steps();
  const std::vector<CommunicationPart> parts = program->parts();
  struct Spent {
    std::uint64_t runs = 0;
    double total_s = 0;
  };
  const auto timing = std::make_shared<Spent>();
  c.run = [=](std::uint64_t iterations) {
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i].channel->clear();
      parts[i].channel->delay(i < delays.size() ? delays[i] : 0);
    }
    const Ticks begin = ticks();
    for (std::uint64_t i = 0; i < iterations; ++i) program->run();
    timing->total_s = seconds(ticks() - begin);
    timing->runs = iterations;
  };
  for (const CommunicationPart& part : parts) c.extra_metrics.push_back(part.metric);
  for (const Metric& m : compute_metrics()) c.extra_metrics.push_back(m.name);
  c.values = [=] {
    const double steps = program->steps() * static_cast<double>(timing->runs);
    Values local_values;
    double messages_s = 0;
    for (const CommunicationPart& part : parts) {
      local_values.push_back(part.channel->spent_s() / steps);
      messages_s += local_values.back();
    }
    local_values.push_back(timing->total_s / steps - messages_s);
    World& world = World::get();
    const int n = static_cast<int>(local_values.size());
    std::vector<double> all_values(local_values.size() * static_cast<std::size_t>(world.size()));
    check(MPI_Allgather(local_values.data(), n, MPI_DOUBLE, all_values.data(), n, MPI_DOUBLE, world.all()),
          "MPI_Allgather");
    Values means(local_values.size(), 0.0);
    double max = 0;
    for (std::size_t i = 0; i < all_values.size(); ++i) {
      means[i % local_values.size()] += all_values[i] / world.size();
      if (i % local_values.size() + 1 == local_values.size()) max = std::max(max, all_values[i]);
    }
    means.push_back(max / means.back());
    if (values_by_block) values_by_block->push_back(means);
    return means;
  };
  program->add_checks(c);
  return c;
}

namespace {

Case alone(const std::string& operation, std::size_t bytes) {
  Case c;
  c.conditions = {{"operation", operation}, {"message_bytes", bytes}};
  c.metric = "operation_time";
  return c;
}

}  // namespace

Case halo_alone(const HaloProtocol& protocol, const RankGrid& grid, const std::vector<int>& lows, std::size_t bytes) {
  const std::size_t words = bytes / 8;
  const std::shared_ptr<Halo> halo = protocol.make(grid, words);
  const int rank = World::get().rank();
  const std::vector<int> neighbour = grid.neighbour;
  Case c = alone("halo", bytes);
  c.conditions["protocol"] = protocol.name;
  c.run = [=](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
      halo->begin();
      for (const int low : lows) halo->along(low);
    }
  };
  c.fill = [=](std::uint32_t tag, bool) {
    for (const int low : lows)
      for (const int side : {low, low + 1})
        for (std::size_t i = 0; i < words; ++i) halo->out(side)[i] = payload(tag, rank, side, i);
  };
  c.defects = [=](std::uint32_t tag, bool) {
    std::vector<Defect> defects;
    for (const int low : lows)
      for (const int side : {low, low + 1})
        for (std::size_t i = 0; i < words && defects.empty(); ++i) {
          const std::uint64_t expected = payload(tag, neighbour[static_cast<std::size_t>(side)], opposite(side), i);
          if (halo->in(side)[i] != expected)
            defects.push_back({"side " + std::to_string(side), i, expected, halo->in(side)[i]});
        }
    return defects;
  };
  return c;
}

Case reduction_alone(const HaloProtocol& protocol, std::size_t bytes) {
  const std::shared_ptr<Reduction> sum = make_reduction(protocol, static_cast<int>(bytes / 8));
  const auto out = std::make_shared<std::vector<double>>(bytes / 8);
  const auto in = std::make_shared<std::vector<double>>(bytes / 8);
  const int rank = World::get().rank(), ranks = World::get().size();
  Case c = alone("sum", bytes);
  c.conditions["reduction"] = reduction_name(protocol);
  c.run = [=](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i) {
      std::copy(out->begin(), out->end(), in->begin());
      sum->add(in->data(), static_cast<int>(in->size()));
    }
  };
  // Small integers are exact in double precision, and so are their sums.
  c.fill = [=](std::uint32_t tag, bool) {
    for (std::size_t i = 0; i < out->size(); ++i) (*out)[i] = (rank + 1.0) * tag + static_cast<double>(i);
  };
  c.defects = [=](std::uint32_t tag, bool) {
    std::vector<Defect> defects;
    for (std::size_t i = 0; i < in->size() && defects.empty(); ++i) {
      const double expected = ranks * (ranks + 1) / 2.0 * tag + ranks * static_cast<double>(i);
      if ((*in)[i] != expected) defects.push_back({"sum", i, word_of(expected), word_of((*in)[i])});
    }
    return defects;
  };
  return c;
}

Case alltoall_alone(MPI_Comm among, std::size_t bytes) {
  int ranks = 0, rank = 0;
  check(MPI_Comm_size(among, &ranks), "MPI_Comm_size");
  check(MPI_Comm_rank(among, &rank), "MPI_Comm_rank");
  const auto out = std::make_shared<Store>(bytes * static_cast<std::size_t>(ranks));
  const auto in = std::make_shared<Store>(bytes * static_cast<std::size_t>(ranks));
  const auto piece = [=](const Store& store, int r) {
    return Message(store.memory.get() + bytes * static_cast<std::size_t>(r), bytes);
  };
  Case c = alone("alltoall", bytes);
  c.run = [=](std::uint64_t iterations) {
    for (std::uint64_t i = 0; i < iterations; ++i)
      MPI_Alltoall(out->memory.get(), static_cast<int>(bytes), MPI_BYTE, in->memory.get(), static_cast<int>(bytes),
                   MPI_BYTE, among);
  };
  c.fill = [=](std::uint32_t tag, bool whole) {
    for (int r = 0; r < ranks; ++r) piece(*out, r).fill(tag + static_cast<std::uint32_t>(r), rank, whole);
  };
  c.defects = [=](std::uint32_t tag, bool whole) {
    for (int r = 0; r < ranks; ++r) {
      auto defects =
          piece(*in, r).defects(tag + static_cast<std::uint32_t>(rank), r, whole, "part " + std::to_string(r));
      if (!defects.empty()) return defects;
    }
    return std::vector<Defect>{};
  };
  return c;
}

}  // namespace mm::mpi
