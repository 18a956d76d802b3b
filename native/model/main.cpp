/// meshmark-model: simulates machines under given workloads, with answers in JSON Lines.
///
/// Reads requests from standard input, one JSON object per line:
///   {"machine": {…}, "runs": [{"kind": "trial", …}, …], "threads": 2}
/// and writes one answer per run, in the order of the runs, for any number of threads
/// (docs/reference/model-protocol.md).
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "base/harness/output.hpp"
#include "base/json.hpp"
#include "model/requests.hpp"
#include "program/entry.hpp"

namespace {

constexpr const char* kName = "meshmark-model";

void run_all(const mm::model::Ready& machine, const mm::json& runs, unsigned threads) {
  const std::size_t count = runs.size();
  if (threads <= 1 || count <= 1) {
    for (std::size_t i = 0; i < count; ++i)
      mm::emit(mm::model::answer(machine, runs[i], i, [&](const mm::json& frame) { mm::emit(frame); }));
    return;
  }
  // Each run is simulated by one thread; answers (and the frames before them) are written in order.
  struct SimulatedRun {
    std::vector<mm::json> lines;
    std::exception_ptr error;
    bool done = false;
  };
  std::vector<SimulatedRun> results(count);
  std::atomic<std::size_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex lock;
  std::condition_variable changed;
  std::vector<std::jthread> team;
  for (unsigned t = 0; t < std::min<std::size_t>(threads, count); ++t)
    team.emplace_back([&] {
      for (std::size_t i = next++; i < count && !stop; i = next++) {
        SimulatedRun result;
        try {
          mm::json line =
              mm::model::answer(machine, runs[i], i, [&](const mm::json& frame) { result.lines.push_back(frame); });
          result.lines.push_back(std::move(line));
        } catch (...) {
          result.error = std::current_exception();
        }
        result.done = true;
        const std::scoped_lock guard(lock);
        results[i] = std::move(result);
        changed.notify_all();
      }
    });
  for (std::size_t i = 0; i < count; ++i) {
    std::unique_lock guard(lock);
    changed.wait(guard, [&] { return results[i].done; });
    const SimulatedRun result = std::move(results[i]);
    guard.unlock();
    try {
      if (result.error) std::rethrow_exception(result.error);
      for (const mm::json& line : result.lines) mm::emit(line);
    } catch (...) {
      stop = true;
      throw;
    }
  }
}

int answer(int argc, char** argv) {
  if (argc > 1 && (std::strcmp(argv[1], "--help") == 0 || std::strcmp(argv[1], "-h") == 0)) {
    std::puts(
        "Usage: meshmark-model < requests.jsonl\n\n"
        "  Simulate machines: read one JSON request per line, and write one JSON answer\n"
        "  per run. meshmark model and meshmark measure INSTRUMENT --on MACHINE use it.\n\n"
        "  example: echo '{\"machine\":{\"topology\":{\"kind\":\"torus\",\"shape\":[8,8]},\"links\":{\"wire\":"
        "{\"bandwidth_gb_per_s\":8,\"latency_ns\":1}},\"router\":{\"message_classes\":1}},"
        "\"runs\":[{\"kind\":\"traffic\",\"load\":0.3,\"packets\":10000}]}' | meshmark-model");
    return 0;
  }
  std::string text;
  std::size_t number = 0;
  try {
    if (argc > 1)
      throw mm::UsageError("options", "found " + mm::quote(argv[1]),
                           "no arguments; requests are read from standard input");
    while (std::getline(std::cin, text)) {
      ++number;
      if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
      const mm::json request = mm::parse_json(text);
      if (!request.is_object() || !request.contains("machine") || !request.at("machine").is_object() ||
          !request.contains("runs") || !request.at("runs").is_array())
        throw mm::UsageError("request", "line " + std::to_string(number) + " is not a request",
                             "{\"machine\": {…}, \"runs\": […]}");
      const mm::model::Ready machine(request.at("machine"));
      unsigned threads = 1;
      if (request.contains("threads") && request.at("threads").is_number_unsigned())
        threads = std::min(256U, request.at("threads").get<unsigned>());
      run_all(machine, request.at("runs"), threads);
    }
    return 0;
  } catch (const std::exception& e) {
    return mm::report_error(kName, e);
  }
}

}  // namespace

int main(int argc, char** argv) {
  return mm::enter(kName, [&] { return answer(argc, argv); });
}
