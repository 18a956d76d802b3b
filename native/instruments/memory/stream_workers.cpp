#include "instruments/memory/stream_workers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace mm::stream {
namespace {

constexpr std::size_t kSkew = 21 * 64;  // arrays start at different page offsets, to avoid 4 KiB aliasing
constexpr double kA = 1, kB = 2, kC = 4;

std::size_t rounded(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096 + kSkew; }

/// Returns the value of `a` after `passes` of the kernel with factor s. Update flips the sign each time (s = -1).
double expected(StreamKernel kernel, double s, std::uint64_t passes) {
  switch (kernel) {
    case StreamKernel::copy:
      return kB;
    case StreamKernel::scale:
      return s * kB;
    case StreamKernel::add:
      return kB + kC;
    case StreamKernel::triad:
      return kB + s * kC;
    case StreamKernel::write:
      return s;
    case StreamKernel::update:
      return passes % 2 == 0 ? kA : -kA;
    default:
      return kA;
  }
}

}  // namespace

std::size_t StreamArrays::arena_bytes(std::size_t footprint) {
  return rounded(footprint) + rounded(footprint / 2) + rounded(footprint / 3);
}

StreamArrays::StreamArrays(std::byte* base, std::size_t footprint)
    : a(reinterpret_cast<double*>(base)),
      b(reinterpret_cast<double*>(base + rounded(footprint))),
      c(reinterpret_cast<double*>(base + rounded(footprint) + rounded(footprint / 2))),
      a_bytes(rounded(footprint)),
      b_bytes(rounded(footprint / 2)),
      c_bytes(rounded(footprint / 3)) {}

void StreamArrays::fill() const {
  std::fill(a, a + a_bytes / 8, kA);
  std::fill(b, b + b_bytes / 8, kB);
  std::fill(c, c + c_bytes / 8, kC);
}

double StreamTask::run(const StreamArrays& p, std::uint64_t passes) const {
  double sum = 0;
  for (std::uint64_t i = 0; i < passes; ++i) sum = function(p.a + first, p.b + first, p.c + first, n, factor);
  return sum;
}

bool StreamTask::correct(const StreamArrays& p, std::uint64_t passes, double sum) const {
  if (kernel == StreamKernel::read) return sum == kA * static_cast<double>(n);
  const double value = expected(kernel, factor, passes);
  const std::size_t stride = std::max<std::size_t>(1, n / 509);
  for (std::size_t i = 0; i < n; i += stride)
    if (p.a[first + i] != value) return false;
  return p.a[first + n - 1] == value;
}

Workers threads_on(const std::shared_ptr<Team>& team, const std::vector<ThreadMemory>& shares) {
  const auto threads = static_cast<std::size_t>(team->size());
  auto parts = std::make_shared<std::vector<StreamArrays>>();
  for (std::size_t t = 0; t < threads; ++t) parts->push_back(shares[t].part);
  auto sums = std::make_shared<std::vector<double>>(threads * 8);  // one cache line per thread
  Workers w;
  w.work = [=](const StreamTask& job, std::uint64_t passes) {
    team->run([&](int rank) {
      const auto t = static_cast<std::size_t>(rank);
      (*sums)[t * 8] = job.run((*parts)[t], passes);
    });
    return team->elapsed_s();
  };
  w.fill = [=](const StreamTask& job) {
    team->run([&](int rank) {
      double* start = (*parts)[static_cast<std::size_t>(rank)].a + job.first;
      std::fill(start, start + job.n, kA);
    });
  };
  w.correct = [=](const StreamTask& job, std::uint64_t passes) {
    for (std::size_t t = 0; t < threads; ++t)
      if (!job.correct((*parts)[t], passes, (*sums)[t * 8])) return false;
    return true;
  };
  return w;
}

std::vector<KernelForm> forms_of(StreamKernel kernel, bool streaming, const std::vector<std::string_view>& isas) {
  const auto index = static_cast<std::size_t>(kernel);
  std::vector<KernelForm> forms;
  for (auto isa = isas.rbegin(); isa != isas.rend(); ++isa) {
    const StreamTable* table = stream_table(*isa);
    if (table == nullptr) continue;
    const StreamFunction plain = (streaming ? table->streaming : table->ordinary)[index];
    forms.push_back({*isa, plain, false});
    if (streaming && table->ahead[index] != plain) forms.push_back({*isa, table->ahead[index], true});
  }
  return forms;
}

namespace {

constexpr double kTrial_s = 1e-3;
constexpr int kTurns = 4;  // the best of several, since trials may be interrupted
constexpr double kTie = 1.03;

/// Times the forms of a job on parts of its arrays.
class Trials {
 public:
  Trials(const StreamTask& job, const Workers& workers)
      : whole_(job), workers_(workers), n_(std::min(job.n, kSmallest)) {
    double elapsed_s = trial_s(job.function);
    while (elapsed_s < kTrial_s && n_ < whole_.n) {
      n_ = std::min(whole_.n, 4 * n_);
      elapsed_s = trial_s(job.function);
    }
    while (elapsed_s < kTrial_s && passes_ < kMostPasses) {
      passes_ *= 2;
      elapsed_s = trial_s(job.function);
    }
  }

  double trial_s(StreamFunction function) { return workers_.work(next(function), passes_); }

  bool correct(StreamFunction function) {
    const StreamTask job = next(function);
    workers_.fill(job);
    workers_.work(job, 1);
    return workers_.correct(job, 1);
  }

 private:
  static constexpr std::size_t kSmallest = 4096;
  static constexpr std::uint64_t kMostPasses = 1 << 16;

  StreamTask next(StreamFunction function) {
    StreamTask job = whole_;
    job.function = function;
    job.n = n_;
    job.first = at_ / 8 * 8 + n_ <= whole_.n ? at_ / 8 * 8 : 0;
    at_ = job.first + n_;
    return job;
  }

  const StreamTask whole_;
  const Workers& workers_;
  std::size_t n_, at_ = 0;
  std::uint64_t passes_ = 1;
};

}  // namespace

KernelForm fastest(const std::vector<KernelForm>& forms, const StreamTask& job, const Workers& workers) {
  StreamTask first = job;
  first.function = forms.front().function;
  Trials trials(first, workers);
  std::vector<double> best_s;
  for (const KernelForm& form : forms)
    best_s.push_back(trials.correct(form.function) ? 1e9 : std::numeric_limits<double>::infinity());
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t f = 0; f < forms.size(); ++f)
      if (std::isfinite(best_s[f])) best_s[f] = std::min(best_s[f], trials.trial_s(forms[f].function));
  const double limit = kTie * *std::min_element(best_s.begin(), best_s.end());
  const auto first_within = std::find_if(best_s.begin(), best_s.end(), [&](double s) { return s <= limit; });
  return forms[static_cast<std::size_t>(first_within - best_s.begin())];
}

ProcessTeam::Order order_of(WorkerCommand op, const StreamTask& job, std::uint64_t passes) {
  // The function has the same address in every process of the team, since all are forks of this one.
  return {static_cast<std::uint64_t>(op),
          static_cast<std::uint64_t>(job.kernel),
          reinterpret_cast<std::uint64_t>(job.function),
          job.n,
          std::bit_cast<std::uint64_t>(job.factor),
          passes,
          job.first};
}

ProcessTeam::Work serve(const MemoryRequest& request, std::size_t footprint) {
  auto arena = Arena::make(request);
  const StreamArrays part(arena->data(), footprint);
  part.fill();
  return [arena, part, sum = 0.0](const ProcessTeam::Order& o) mutable {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an order consists of integers, to be sent to another process
    const StreamTask job{static_cast<StreamKernel>(o[1]), reinterpret_cast<StreamFunction>(o[2]), o[3],
                         std::bit_cast<double>(o[4]), o[6]};
    switch (static_cast<WorkerCommand>(o[0])) {
      case WorkerCommand::work:
        sum = job.run(part, o[5]);
        return 0.0;
      case WorkerCommand::fill:
        std::fill(part.a + job.first, part.a + job.first + job.n, kA);
        return 0.0;
      case WorkerCommand::verify:
        return job.correct(part, o[5], sum) ? 1.0 : 0.0;
      case WorkerCommand::huge_share:
        return arena->huge_share();
      default:
        return static_cast<double>(arena->node_shares().rbegin()->first);
    }
  };
}

Workers processes_on(const std::shared_ptr<ProcessTeam>& processes) {
  Workers w;
  w.work = [=](const StreamTask& job, std::uint64_t passes) {
    processes->run(order_of(WorkerCommand::work, job, passes));
    return processes->elapsed_s();
  };
  w.fill = [=](const StreamTask& job) { processes->run(order_of(WorkerCommand::fill, job, 0)); };
  w.correct = [=](const StreamTask& job, std::uint64_t passes) {
    const auto& correct = processes->run(order_of(WorkerCommand::verify, job, passes));
    return std::all_of(correct.begin(), correct.end(), [](double x) { return x == 1.0; });
  };
  return w;
}

}  // namespace mm::stream
