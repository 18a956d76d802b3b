/// llm: the memory traffic of a language model that generates text, by placement of its weights.
#include <map>

#include "base/harness/instrument.hpp"
#include "base/options/options.hpp"
#include "base/topology/topology.hpp"
#include "instruments/compute/llm_model.hpp"
#include "kernels/stream.hpp"

namespace {

using mm::json;
using mm::llm::DecoderModel;
using mm::llm::kRowBytes;

const mm::Description kLlm{
    .name = "llm",
    .summary =
        "tokens per second of a load that resembles language-model inference, and their prediction from bandwidth",
    .detail =
        "For each token, every layer multiplies a matrix of weights by a vector, and the next vector follows from the "
        "result; all weights are read once, and the threads synchronize twice per layer. Batches of one token are "
        "limited by this traffic, whatever the arithmetic. one-node: all weights on one memory node; interleave: pages "
        "on all nodes in alternation; local: each thread's weights on its own node; mirror: a copy on every node. The "
        "prediction is the rate at which the same threads only read the same memory, over the bytes of a token, "
        "measured in alternation with the load. Numbers are small integers, so results are exact; some rows of every "
        "layer are recomputed.\n"
        "example: meshmark-probe llm --weights 4GiB --threads all --placement one-node,mirror",
    .source = "weights are read once per token: Pope et al., Efficiently Scaling Transformer Inference, MLSys 2023, 2",
    .spoils = {"other traffic on the memory controller", "weights that fit into a cache",
               "threads on CPUs that other work uses: all wait for the slowest"},
    .needs = {},
    .parameters = {{"weights_bytes",
                    "weights of all layers; memory: four times all last-level caches, at least 512 MiB",
                    "B",
                    mm::Kind::sizes,
                    "memory",
                    1 << 20,
                    {}},
                   {"layers", "matrices, one after the other", "", mm::Kind::integer, "32", 1, 1024},
                   mm::choices("placement", "where the weights are", "one-node,interleave,local,mirror",
                               {"one-node", "interleave", "local", "mirror"}),
                   {"threads", "numbers of threads: a list, a range, all", "", mm::Kind::integers, "1,all", 1, 65536}},
    .metrics = {{"token_rate", "tokens per second", "op/s", mm::Better::higher},
                {"weights_bandwidth", "bytes of weights over time", "B/s", mm::Better::higher},
                {"read_bandwidth", "bytes over time when the same threads only read the weights", "B/s",
                 mm::Better::higher},
                {"prediction_ratio", "token_rate over its prediction from read_bandwidth", "1", mm::Better::none}},
    .identity = {"weights_bytes", "layers", "placement", "threads", "cpus", "pages", "memory_node"},
    .bytes_per_iteration = 4,
    .flops_per_iteration = 2,
};

struct ModelSetup {
  std::size_t bytes;
  std::string placement;
  mm::Pages pages;
  int node;  ///< for one-node; -1: the node of the first CPU
};

/// Allocates the arenas of a placement and sets each thread's weights in them. Returns false after an `absent` line.
bool place(mm::Run& run, const ModelSetup& s, DecoderModel& model, const std::vector<int>& cpus,
           const json& conditions) {
  const std::size_t part = model.layers * model.rows * kRowBytes;
  const auto make = [&](std::size_t bytes, mm::Policy policy, int node, int touch_cpu) -> std::byte* {
    try {
      model.arenas.push_back(mm::Arena::make({bytes, s.pages, policy, node, touch_cpu}));
    } catch (const mm::Absent& error) {
      run.absent("token_rate", conditions, error.what(), error.enable);
      return nullptr;
    }
    return model.arenas.back()->data();
  };
  std::map<int, std::byte*> base_by_node;
  for (std::size_t t = 0; t < cpus.size(); ++t) {
    const int local_node = mm::topology().cpu(cpus[t]).node;
    std::byte* base = nullptr;
    if (s.placement == "local") {
      base = make(part, mm::Policy::node, local_node, cpus[t]);
    } else {
      const int key = s.placement == "mirror" ? local_node : 0;
      if (!base_by_node.contains(key))
        base_by_node[key] =
            make(part * cpus.size(), s.placement == "interleave" ? mm::Policy::interleave : mm::Policy::node,
                 s.placement == "mirror" ? local_node : s.node, cpus[t]);
      base = base_by_node[key] == nullptr ? nullptr : base_by_node[key] + t * part;
    }
    if (base == nullptr) return false;
    model.parts.push_back(reinterpret_cast<float*>(base));
  }
  return true;
}

/// Returns whether a placement differs from `one-node` on this machine. If not, reports the point as absent.
bool differs(mm::Run& run, const ModelSetup& s, const json& conditions) {
  if (s.placement == "one-node" || mm::topology().memory_nodes.size() > 1) return true;
  run.absent("token_rate", conditions, "this machine has one memory node, so all placements are one-node");
  return false;
}

void add_point(mm::Run& run, std::vector<mm::Point>& points, const ModelSetup& s, const std::vector<int>& cpus) {
  const std::size_t threads = cpus.size(), layers = static_cast<std::size_t>(run.integer("layers"));
  const std::size_t rows = std::max<std::size_t>(1, s.bytes / (layers * threads * kRowBytes));
  const auto model = std::make_shared<DecoderModel>(layers, threads, rows);
  const auto node = s.placement == "one-node" ? json(s.node) : json(s.placement);
  const json conditions{{"weights_bytes", layers * threads * rows * kRowBytes},
                        {"layers", layers},
                        {"placement", s.placement},
                        {"threads", threads},
                        {"cpus", mm::cpu_list(cpus)},
                        {"pages", mm::name(s.pages)},
                        {"page_bytes", mm::page_bytes(s.pages)},
                        {"memory_node", node}};
  if (!differs(run, s, conditions) || !place(run, s, *model, cpus, conditions)) return;
  const auto team = run.team(cpus);
  const auto isa = mm::best_isa();
  const mm::DotFunction dot = mm::dot_function(isa);
  const mm::StreamFunction read = mm::stream_table(isa)->ordinary[static_cast<std::size_t>(mm::StreamKernel::read)];
  mm::Point p;
  p.conditions = conditions;
  p.metrics = {"token_rate", "weights_bandwidth", "read_bandwidth", "prediction_ratio"};
  p.team = team;
  p.arenas = model->arenas;
  p.shield = false;  // a token of many weights takes longer than a burst at real-time priority may
  p.width_of_first_only = true;
  const auto filled = std::make_shared<bool>(false);
  p.prepare = [=] {
    if (*filled) return;
    team->run([&](int rank) { model->fill(static_cast<std::size_t>(rank)); });
    team->run([&](int rank) { model->token(static_cast<std::size_t>(rank), dot); });
    *filled = true;
  };
  p.burst = [=] {
    team->run([&](int rank) { mm::keep(model->read(static_cast<std::size_t>(rank), read)); });
    const double read_s = team->elapsed_s();
    team->run([&](int rank) { model->token(static_cast<std::size_t>(rank), dot); });
    const double token_s = team->elapsed_s();
    model->wrong = model->wrong || !model->correct();
    return mm::Values{1 / token_s, model->bytes() / token_s, model->bytes() / read_s, read_s / token_s};
  };
  p.check = [=]() -> std::vector<std::string> {
    return model->wrong ? std::vector<std::string>{"unverified"} : std::vector<std::string>{};
  };
  points.push_back(std::move(p));
}

void measure(mm::Run& run) {
  const std::vector<int> order = mm::fill_order("cores", run.cpus());
  std::vector<int> nodes = run.memory_nodes();
  if (nodes.empty()) nodes = {mm::topology().cpu(order.front()).node};
  std::vector<std::pair<ModelSetup, int>> setups;
  for (const std::size_t bytes : run.sizes("weights_bytes"))
    for (const mm::Pages pages : run.pages())
      for (const std::string& placement : run.choices("placement"))
        for (const int node : placement == "one-node" ? nodes : std::vector<int>{-1})
          for (const int threads : run.team_sizes("threads", order))
            setups.push_back({{bytes, placement, pages, node}, threads});
  // Points are measured one after the other, since memory may suffice for only one of them.
  for (std::size_t i = 0; i < setups.size(); ++i) {
    std::vector<mm::Point> points;
    add_point(run, points, setups[i].first, {order.begin(), order.begin() + setups[i].second});
    run.allot(1.0 / static_cast<double>(setups.size() - i));
    run.measure(std::move(points));
  }
}

const mm::Instrument llm{kLlm, measure};

}  // namespace
