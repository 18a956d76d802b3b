/// anatomy: decomposes the step of an application into computation, latency, bandwidth and waiting, using cost curves
/// that are measured next to it, and tests the prediction for a higher latency per message.
#include <algorithm>
#include <cmath>
#include <set>

#include "apps/ranks/apps.hpp"
#include "base/error.hpp"
#include "base/harness/stats.hpp"

namespace mm::mpi {
namespace {

std::vector<std::string> protocols() {
  std::vector<std::string> names;
  for (const HaloProtocol& p : all_halos())
    if (p.paradigm != "caf") names.push_back(p.name);  // co-arrays support one size at a time
  return names;
}

const Description& anatomy_description() {
  static const Description d{
      .name = "anatomy",
      .summary = "decomposes a step of pop, gyro or swim into computation, latency, bandwidth and waiting, with a test",
      .detail =
          "The application's operations (halo exchange, global sum, alltoall) are measured alone by size and fitted by "
          "latency + bytes / bandwidth. With the number of operations per step, the fits give the latency and "
          "bandwidth parts of a step. The extra computing time of the slowest rank is imbalance; the rest of the time "
          "in messages is other. The fits predict the time of a step at half the latency and at a multiple of it "
          "(--factor). The latter is tested: before each operation every rank spins for the added latency.\n"
          "example: mpirun -n 4 meshmark-comm anatomy --program pop",
      .source = "latency and bandwidth as in Hockney, The communication challenge for MPP (1994)",
      .spoils = {"another process on a rank's CPU", "more ranks than CPUs"},
      .needs = {"an MPI library", "two ranks"},
      .parameters = {{"program",
                      "applications to decompose, with their default options",
                      "",
                      Kind::choices,
                      "pop,gyro,swim",
                      {},
                      {},
                      {"pop", "gyro", "swim"}},
                     {"protocol", "halo protocol", "", Kind::choice, "irecv_isend", {}, {}, protocols()},
                     {"reductions", "global reductions per iteration of pop", "", Kind::integer, "2", 1, 2},
                     {"factor", "tested latency as a multiple of the actual one", "", Kind::integer, "2", 2, 1000}},
      .metrics =
          [] {
            std::vector<Metric> metrics = {
                {"operation_time", "time of one operation alone, on the slowest rank", "s", Better::lower},
                {"operation_latency", "fitted time of an operation without bytes", "s", Better::lower},
                {"operation_bandwidth", "fitted bandwidth: bytes of one message over the time they add", "B/s",
                 Better::higher},
                {"step_time", "time of a step (of pop: an iteration), on the slowest rank", "s", Better::lower},
                {"halo_time", "time per step in halo exchanges, packing included, mean over ranks", "s", Better::lower},
                {"reduce_time", "time per step in global reductions, mean over ranks", "s", Better::lower},
                {"transpose_time", "time per step in transposes, packing included, mean over ranks", "s",
                 Better::lower}};
            for (const Metric& m : compute_metrics()) metrics.push_back(m);
            const std::vector<Metric> derived = {
                {"transpose_share", "share of the step in transposes", "1", Better::lower},
                {"residual", "of pop's solution, relative to the right-hand side", "1", Better::lower},
                {"latency_time", "part of a step due to the latency of its operations", "s", Better::lower},
                {"bandwidth_time", "part of a step due to the bytes transferred", "s", Better::lower},
                {"imbalance_time", "part of a step in which ranks wait for the one that computes longest", "s",
                 Better::lower},
                {"other_time",
                 "part of a step in messages that latency, bandwidth and imbalance do not explain; negative if they "
                 "exceed the measured time",
                 "s", Better::none},
                {"predicted_time", "time of a step at another latency, from the fits", "s", Better::none},
                {"prediction_error", "predicted over measured time of a step at the tested latency, minus 1", "1",
                 Better::none}};
            metrics.insert(metrics.end(), derived.begin(), derived.end());
            return metrics;
          }(),
      .identity = {"program", "operation", "message_bytes", "latency_factor", "protocol", "reductions", "ranks", "mpi"},
      .ranks = true,
  };
  return d;
}

/// The fit t = latency + slope * bytes, by least squares of the relative errors. Neither coefficient is negative.
struct LatencyFit {
  double latency_s = 0, slope_s = 0;
};

LatencyFit fit(const std::vector<double>& bytes, const std::vector<double>& times_s) {
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

/// Returns sizes around the size of the application's messages, in bytes.
std::vector<std::size_t> sizes_about(std::size_t bytes) {
  std::set<std::size_t> sizes;
  if (bytes <= 64)
    sizes = {8, 16, 32, 64, 128, 256};
  else
    for (const std::size_t n : {std::size_t{8}, bytes / 8, bytes / 4, bytes / 2, bytes, 2 * bytes})
      sizes.insert(std::max<std::size_t>(8, n / 8 * 8));
  return {sizes.begin(), sizes.end()};
}

std::shared_ptr<MiniApplication> make(const std::string& name, const Run& run) {
  if (name == "gyro") return make_gyro(16, 32, gyro_extent(16, 32));
  for (const HaloProtocol& p : all_halos()) {
    if (p.name != run.text("protocol")) continue;
    if (!p.make) throw Absent(p.missing);
    if (name == "swim") return make_swim(p, 256, 50);
    return make_pop(p, RankGrid::make(2), static_cast<int>(run.integer("reductions")));
  }
  throw std::logic_error("an accepted protocol is not registered");
}

/// One application: cost curves of its operations, measured steps, and the resulting decomposition.
class Anatomy {
 public:
  /// `share` is the part of the remaining budget that this application may use.
  Anatomy(Run& run, const std::string& name, double share);
  /// Measures the application and derives the decomposition. Collective.
  void measure();

 private:
  bool fit_operations();
  bool fit_operation(const CommunicationPart& part);
  void count_operations();
  bool measure_steps();
  void explain() const;
  void predict() const;
  void derive(const std::string& metric, const std::vector<double>& samples, double latency_factor) const;
  std::vector<std::string> flags() const { return {flags_->begin(), flags_->end()}; }
  /// Returns the median over blocks of an extra metric of the application: the time of a part, compute_time or
  /// imbalance.
  double typical(std::size_t at) const;

  Run& run_;
  const std::string name_;
  const double share_, factor_;
  const std::shared_ptr<MiniApplication> program_;
  const std::vector<CommunicationPart> parts_;
  json conditions_;
  std::shared_ptr<std::set<std::string>> flags_ = std::make_shared<std::set<std::string>>();  // of all measurements
  std::vector<LatencyFit> fits_;
  std::vector<double> delays_;  // s, by part: the delay that multiplies its latency by the factor
  double latency_s_ = 0, bandwidth_s_ = 0;
  std::shared_ptr<std::vector<Values>> values_ = std::make_shared<std::vector<Values>>();
  std::shared_ptr<std::vector<double>> rounds_ = std::make_shared<std::vector<double>>(),
                                       delayed_ = std::make_shared<std::vector<double>>();
};

Anatomy::Anatomy(Run& run, const std::string& name, double share)
    : run_(run),
      name_(name),
      share_(share),
      factor_(static_cast<double>(run.integer("factor"))),
      program_(make(name, run)),
      parts_(program_->parts()),
      conditions_(program_->conditions()) {
  conditions_.update(World::get().conditions());
  conditions_["program"] = name;
}

double Anatomy::typical(std::size_t at) const {
  std::vector<double> values;
  for (const Values& block : *values_) values.push_back(block[at]);
  return median(values);
}

bool Anatomy::fit_operation(const CommunicationPart& part) {
  std::vector<double> bytes;
  std::vector<Case> cases;
  for (const std::size_t n : sizes_about(part.bytes)) {
    bytes.push_back(static_cast<double>(n));
    cases.push_back(part.alone(n));
    cases.back().conditions["program"] = name_;
    cases.back().flags = flags_;
  }
  const auto times = mpi::measure(run_, std::move(cases), share_ * 0.4 / static_cast<double>(parts_.size()));
  json conditions = conditions_;
  conditions["operation"] = part.operation;
  conditions["program_bytes"] = part.bytes;
  if (std::any_of(times.begin(), times.end(), [](double t) { return !std::isfinite(t); })) {
    run_.absent("latency_time", conditions, "the cost curve of " + part.operation + " could not be measured");
    return false;
  }
  fits_.push_back(fit(bytes, times));
  run_.derive("operation_latency", {fits_.back().latency_s}, conditions, flags(), "operation_time");
  if (fits_.back().slope_s > 0)
    run_.derive("operation_bandwidth", {1 / fits_.back().slope_s}, conditions, flags(), "operation_time");
  else
    run_.absent("operation_bandwidth", conditions, "the operation's time does not grow with its bytes at these sizes");
  return true;
}

bool Anatomy::fit_operations() {
  return std::all_of(parts_.begin(), parts_.end(),
                     [this](const CommunicationPart& part) { return fit_operation(part); });
}

/// Counts the operations per step and evaluates the fits at these counts.
void Anatomy::count_operations() {
  for (const CommunicationPart& part : parts_) part.channel->clear();
  program_->run();
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const double count = static_cast<double>(parts_[i].channel->count()) / program_->steps();
    delays_.push_back((factor_ - 1) * fits_[i].latency_s);
    latency_s_ += count * fits_[i].latency_s;
    bandwidth_s_ += count * fits_[i].slope_s * static_cast<double>(parts_[i].bytes);
    conditions_[parts_[i].operation + "s_per_step"] = count;
  }
}

/// Measures original and delayed steps in the same rounds, so that a change of the machine's speed affects both.
bool Anatomy::measure_steps() {
  std::vector<Case> cases = {program_case(program_, {}, values_), program_case(program_, delays_)};
  cases[0].rounds = rounds_;
  cases[1].rounds = delayed_;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    cases[i].metric = "step_time";
    cases[i].conditions["program"] = name_;
    cases[i].conditions["latency_factor"] = i == 0 ? 1 : factor_;
    cases[i].flags = flags_;
  }
  const auto medians = mpi::measure(run_, std::move(cases), share_, true);
  const bool both = std::isfinite(medians[0]) && std::isfinite(medians[1]);
  if (both && !values_->empty()) return true;
  run_.absent("latency_time", conditions_,
              values_->empty() && std::isfinite(medians[0]) ? "the parts of its steps are in an earlier output"
                                                            : "its steps could not be measured");
  return false;
}

void Anatomy::derive(const std::string& metric, const std::vector<double>& samples, double latency_factor) const {
  json conditions = conditions_;
  conditions["latency_factor"] = latency_factor;
  run_.derive(metric, samples, conditions, flags(), "operation_time, step_time");
}

void Anatomy::explain() const {
  const std::size_t compute = parts_.size(), imbalance = compute + 1;
  double messages_s = 0;
  for (std::size_t i = 0; i < parts_.size(); ++i) messages_s += typical(i);
  const double waiting_s = typical(compute) * (typical(imbalance) - 1);
  derive("latency_time", {latency_s_}, 1);
  derive("bandwidth_time", {bandwidth_s_}, 1);
  derive("imbalance_time", {waiting_s}, 1);
  derive("other_time", {messages_s - latency_s_ - bandwidth_s_ - waiting_s}, 1);
}

void Anatomy::predict() const {
  std::vector<double> half, more, errors;
  for (std::size_t i = 0; i < rounds_->size(); ++i) {
    const double step_s = (*rounds_)[i];
    if (std::isnan(step_s)) continue;
    half.push_back(step_s - latency_s_ / 2);
    more.push_back(step_s + (factor_ - 1) * latency_s_);
    if (i < delayed_->size() && !std::isnan((*delayed_)[i])) errors.push_back(more.back() / (*delayed_)[i] - 1);
  }
  derive("predicted_time", half, 0.5);
  derive("predicted_time", more, factor_);
  if (!errors.empty())
    derive("prediction_error", errors, factor_);
  else
    run_.absent("prediction_error", conditions_, "no round is undisturbed for both latencies", "a quieter machine");
}

void Anatomy::measure() {
  if (!fit_operations()) return;
  count_operations();
  if (!measure_steps()) return;
  explain();
  predict();
}

void measure_anatomy(Run& run) {
  World& world = World::get();
  world.check_request(run);
  if (world.size() < 2) throw Absent("needs at least 2 ranks, found 1", "--ranks 2");
  const auto programs = run.choices("program");
  for (std::size_t i = 0; i < programs.size(); ++i) {
    try {
      if (too_late(run)) throw run.out_of_budget();
      Anatomy(run, programs[i], 1.0 / static_cast<double>(programs.size() - i)).measure();
    } catch (const Absent& error) {
      run.absent("step_time", {{"program", programs[i]}, {"mpi", world.kind()}}, error.what(), error.enable);
    }
  }
}

const Instrument anatomy{anatomy_description(), measure_anatomy};

}  // namespace
}  // namespace mm::mpi
