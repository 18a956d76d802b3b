/// anatomy: what a step of a program is made of - computing, latency, bandwidth, waiting - by curves that are measured
/// beside it, and whether these tell what happens when every message takes longer.
#include <algorithm>
#include <cmath>
#include <set>

#include "apps.hpp"
#include "base/error.hpp"
#include "base/stats.hpp"

namespace mm::comm {
namespace {

std::vector<std::string> protocols() {
  std::vector<std::string> names;
  for (const HaloProtocol& p : all_halos())
    if (p.paradigm != "caf") names.push_back(p.name);  // co-arrays are of one size at a time
  return names;
}

const Description& anatomy_description() {
  static const Description d{
      .name = "anatomy",
      .summary = "a step of pop, gyro or swim taken apart into computing, latency, bandwidth and waiting, and checked",
      .detail =
          "The program's own operations (halo exchange, sum over all ranks, alltoall) are measured alone by size and "
          "fitted by latency + bytes / bandwidth. With how often a step has each, that says how much of it is latency "
          "and how "
          "much bandwidth; what the slowest rank computes longer is imbalance; the rest of the time in messages is "
          "other. So the time of a step is predicted for half the latency, and for twice (or --factor) as much. The "
          "latter is tried: before each operation every rank spins for what is added.\n"
          "example: mpirun -n 4 meshmark-comm anatomy --program pop",
      .source = "latency and bandwidth as in Hockney, The communication challenge for MPP (1994)",
      .spoils = {"a neighbour on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {{"program",
                      "which are taken apart, with their own defaults",
                      "",
                      Kind::choices,
                      "pop,gyro,swim",
                      {},
                      {},
                      {"pop", "gyro", "swim"}},
                     {"protocol", "of the halo", "", Kind::choice, "irecv_isend", {}, {}, protocols()},
                     {"reductions", "of pop, sums over all ranks an iteration", "", Kind::integer, "2", 1, 2},
                     {"factor", "latency that is tried over what it is", "", Kind::integer, "2", 2, 1000}},
      .metrics =
          [] {
            std::vector<Metric> all = {
                {"operation_time", "time of one operation alone, the slowest rank's", "s", Better::lower},
                {"operation_latency", "of the fit: of an operation without bytes", "s", Better::lower},
                {"operation_bandwidth", "of the fit: bytes of one message over the time they add", "B/s",
                 Better::higher},
                {"step_time", "time of a step (of pop: an iteration), the slowest rank's", "s", Better::lower},
                {"halo_time", "part of it in halo exchanges, packing included, mean over ranks", "s", Better::lower},
                {"reduce_time", "part of it in sums over all ranks, mean over ranks", "s", Better::lower},
                {"transpose_time", "part of it in transposes, packing included, mean over ranks", "s", Better::lower}};
            for (const Metric& m : compute_metrics()) all.push_back(m);
            const std::vector<Metric> more = {
                {"transpose_share", "share of the step in transposes", "1", Better::lower},
                {"residual", "of pop's solution, relative to the right-hand side", "1", Better::lower},
                {"latency_time", "part of a step that is latency of its operations", "s", Better::lower},
                {"bandwidth_time", "part of a step that its bytes take", "s", Better::lower},
                {"imbalance_time", "part of a step in which ranks wait for the one that computes longest", "s",
                 Better::lower},
                {"other_time",
                 "part of a step in messages that none of these explains; less than 0: they explain more "
                 "than there is",
                 "s", Better::none},
                {"predicted_time", "time of a step with another latency, by the fit", "s", Better::none},
                {"prediction_error", "predicted time of a step over the measured one, less 1, with more latency", "1",
                 Better::none}};
            all.insert(all.end(), more.begin(), more.end());
            return all;
          }(),
      .identity = {"program", "operation", "message_bytes", "latency_factor", "protocol", "reductions", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// t = latency + slope bytes, relative errors weighing alike. Neither is less than 0.
struct Fit {
  double latency_s = 0, slope_s = 0;
};

Fit fit(const std::vector<double>& bytes, const std::vector<double>& times_s) {
  double w = 0, x = 0, t = 0, xx = 0, xt = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const double weight = 1 / (times_s[i] * times_s[i]);
    w += weight;
    x += weight * bytes[i];
    t += weight * times_s[i];
    xx += weight * bytes[i] * bytes[i];
    xt += weight * bytes[i] * times_s[i];
  }
  const double slope = std::max(0.0, (w * xt - x * t) / (w * xx - x * x));
  return {std::max(0.0, (t - slope * x) / w), slope};
}

/// Sizes about that of the program's messages, B.
std::vector<std::size_t> sizes_about(std::size_t bytes) {
  std::set<std::size_t> all;
  if (bytes <= 64)
    all = {8, 16, 32, 64, 128, 256};
  else
    for (const std::size_t n : {std::size_t{8}, bytes / 8, bytes / 4, bytes / 2, bytes, 2 * bytes})
      all.insert(std::max<std::size_t>(8, n / 8 * 8));
  return {all.begin(), all.end()};
}

std::shared_ptr<Program> make(const std::string& name, const Run& run) {
  if (name == "gyro") return make_gyro(16, 32, gyro_extent(16, 32));
  for (const HaloProtocol& p : all_halos()) {
    if (p.name != run.text("protocol")) continue;
    if (!p.make) throw Absent(p.missing);
    if (name == "swim") return make_swim(p, 256, 50);
    return make_pop(p, Grid::make(2), static_cast<int>(run.integer("reductions")));
  }
  throw std::logic_error("a protocol that was allowed is not there");
}

/// One program: curves, steps, and what they say of each other. It has this share of the time that is left.
void take_apart(Run& run, const std::string& name, double share) {
  World& world = World::get();
  const std::shared_ptr<Program> program = make(name, run);
  json conditions = program->conditions();
  conditions.update(world.conditions());
  conditions["program"] = name;
  const auto seen = std::make_shared<std::set<std::string>>();  // flags of what was measured, in what is derived
  const auto flags = [&] { return std::vector<std::string>(seen->begin(), seen->end()); };
  const double factor = static_cast<double>(run.integer("factor"));
  const std::vector<Part> parts = program->parts();
  std::vector<Fit> fits;
  for (const Part& part : parts) {
    std::vector<double> bytes;
    std::vector<Case> cases;
    for (const std::size_t n : sizes_about(part.bytes)) {
      bytes.push_back(static_cast<double>(n));
      cases.push_back(part.alone(n));
      cases.back().conditions["program"] = name;
      cases.back().flags = seen;
    }
    const auto times = measure(run, std::move(cases), share * 0.4 / static_cast<double>(parts.size()));
    json what = conditions;
    what["operation"] = part.operation;
    what["program_bytes"] = part.bytes;
    if (std::any_of(times.begin(), times.end(), [](double t) { return !std::isfinite(t); })) {
      run.absent("latency_time", what, "the curve of its " + part.operation + " could not be measured");
      return;
    }
    fits.push_back(fit(bytes, times));
    run.derive("operation_latency", {fits.back().latency_s}, what, flags(), "operation_time");
    if (fits.back().slope_s > 0)
      run.derive("operation_bandwidth", {1 / fits.back().slope_s}, what, flags(), "operation_time");
    else
      run.absent("operation_bandwidth", what, "its time does not grow with its bytes at these sizes");
  }

  // How often a step has each: counted.
  for (const Part& part : parts) part.channel->clear();
  program->run();
  std::vector<double> counts, delays;
  double latency_s = 0, bandwidth_s = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    counts.push_back(static_cast<double>(parts[i].channel->count()) / program->steps());
    delays.push_back((factor - 1) * fits[i].latency_s);
    latency_s += counts[i] * fits[i].latency_s;
    bandwidth_s += counts[i] * fits[i].slope_s * static_cast<double>(parts[i].bytes);
    conditions[parts[i].operation + "s_per_step"] = counts[i];
  }

  const auto kept = std::make_shared<std::vector<Values>>();
  const std::shared_ptr<std::vector<double>> rounds[2] = {std::make_shared<std::vector<double>>(),
                                                          std::make_shared<std::vector<double>>()};
  std::vector<Case> cases = {program_case(program, {}, kept), program_case(program, delays)};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].metric = "step_time";
    cases[i].conditions["program"] = name;
    cases[i].conditions["latency_factor"] = i == 0 ? 1 : factor;
    cases[i].flags = seen;
    cases[i].rounds = rounds[i];
  }
  const auto medians = measure(run, std::move(cases), share, true);
  if (!std::isfinite(medians[0]) || !std::isfinite(medians[1]) || kept->empty()) {
    run.absent("latency_time", conditions,
               kept->empty() && std::isfinite(medians[0]) ? "what its steps are made of is in an earlier output"
                                                          : "its steps could not be measured");
    return;
  }
  // Of every part, then of computing, then the imbalance.
  const auto typical = [&](std::size_t at) {
    std::vector<double> of;
    for (const Values& one : *kept) of.push_back(one[at]);
    return median(of);
  };
  double messages_s = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) messages_s += typical(i);
  const double waiting_s = typical(parts.size()) * (typical(parts.size() + 1) - 1);
  const auto say = [&](const std::string& metric, const std::vector<double>& samples, double with) {
    json what = conditions;
    what["latency_factor"] = with;
    run.derive(metric, samples, what, flags(), "operation_time, step_time");
  };
  say("latency_time", {latency_s}, 1);
  say("bandwidth_time", {bandwidth_s}, 1);
  say("imbalance_time", {waiting_s}, 1);
  say("other_time", {messages_s - latency_s - bandwidth_s - waiting_s}, 1);
  // Round by round, so that a machine that changes its pace changes it for both.
  std::vector<double> half, more, errors;
  for (std::size_t i = 0; i < rounds[0]->size(); ++i) {
    const double as_it_is_s = (*rounds[0])[i];
    if (std::isnan(as_it_is_s)) continue;
    half.push_back(as_it_is_s - latency_s / 2);
    more.push_back(as_it_is_s + (factor - 1) * latency_s);
    if (i < rounds[1]->size() && !std::isnan((*rounds[1])[i])) errors.push_back(more.back() / (*rounds[1])[i] - 1);
  }
  say("predicted_time", half, 0.5);
  say("predicted_time", more, factor);
  if (!errors.empty())
    say("prediction_error", errors, factor);
  else
    run.absent("prediction_error", conditions, "no round of both was left undisturbed", "a quieter machine");
}

void measure_anatomy(Run& run) {
  World& world = World::get();
  world.expect(run);
  if (world.size() < 2) throw Absent("one rank has nobody to talk to", "--ranks 2");
  const auto programs = run.choices("program");
  for (std::size_t i = 0; i < programs.size(); ++i) {
    try {
      if (too_late(run)) throw run.out_of_budget();
      take_apart(run, programs[i], 1.0 / static_cast<double>(programs.size() - i));
    } catch (const Absent& why) {
      run.absent("step_time", {{"program", programs[i]}, {"mpi", world.kind()}}, why.what(), why.enable);
    }
  }
}

const Instrument anatomy{anatomy_description(), measure_anatomy};

}  // namespace
}  // namespace mm::comm
