/// meshmark-watch: samples this machine (or a recorded tree) and writes frames as JSON Lines to standard output.
///
/// A header names the components and metrics, and what is absent and why; one frame per tick follows
/// (docs/reference/frames.md).
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <tuple>

#include "base/error.hpp"
#include "base/input_file.hpp"
#include "base/options/arguments.hpp"
#include "program/entry.hpp"
#include "watch/canary.hpp"
#include "watch/sampler.hpp"
#include "watch/traffic/audit.hpp"

namespace {

std::atomic<bool> stop{false};
void on_signal(int) { stop = true; }

/// Returns the JSON object in the file of an option.
mm::json read_object(const std::string& option, const std::string& path) {
  const mm::FileContent input = mm::read_input(path);
  const std::string where = mm::shown_path(path) + ": ";
  if (!input.wrong.empty()) throw mm::UsageError(option, where + input.wrong, input.allowed);
  mm::json object = mm::parse_json(input.text);
  if (!object.is_object()) throw mm::UsageError(option, where + "a JSON object is required");
  return object;
}

int answer(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  mm::watch::SamplerSettings settings;
  double rate = 1;
  bool describe = false;
  mm::Arguments app{
      "Sample this machine and write frames as JSON Lines.\n\nexample: meshmark-watch --rate 10 --duration 5s"};
  app.add("--rate", rate, "frames per second (Hz)").from(0.001, 1000.0).show_default();
  app.time("--duration", settings.duration_s, "stop after this time; 0: never");
  app.time("--hold", settings.hold_s, "write frames in batches of this length; 0: write each immediately", 0, 60);
  app.add("--root", settings.root, "sample a recorded tree with proc and sys instead of this machine").of_folder();
  std::string sustained, canary;
  double calibration = 0;
  app.time("--calibrate", calibration,
           "for this time, measure the canary's latency as a function of traffic; then print the curve and exit", 1,
           3600);
  double audit_s = 0;
  app.time("--audit", audit_s,
           "run loads of prescribed rates, each for this time, and write what the counters of memory and links report; "
           "then exit",
           1, 3600);
  app.add("--canary", canary, "output of --calibrate, with which the canary estimates traffic").of_file();
  app.add("--attained", sustained, "JSON file with the sustained bandwidths that a survey measured on this machine")
      .of_file();
  std::vector<std::string> names;
  for (const auto& r : mm::watch::registry()) names.emplace_back(r.name);
  std::sort(names.begin(), names.end());
  app.add("--sources", settings.sources, "sources to sample [all]").one_of(names);
  app.add("--without", settings.without, "sources to omit").one_of(names);
  app.flag("--describe", describe, "print only the header");
  if (!app.read(argc, argv, "")) return 0;
  settings.period_s = 1 / rate;
  const auto has = [&](const char* folder) { return std::filesystem::is_directory(settings.root + folder); };
  if (!settings.root.empty() && !has("/proc") && !has("/sys"))
    throw mm::UsageError("--root", mm::shown_path(settings.root) + ": has neither proc nor sys",
                         "a tree recorded by meshmark machine capture");
  try {
    for (const auto& [option, file, into] :
         {std::tuple{"--attained", &sustained, &settings.sustained}, {"--canary", &canary, &settings.canary}}) {
      if (!file->empty()) *into = read_object(option, *file);
    }
    if (calibration > 0) {
      mm::watch::Board board;
      const mm::watch::Host host = mm::watch::find_host("", board);
      std::cout << mm::watch::calibrate(host, 10, calibration / 11 / static_cast<double>(host.parts)).dump() << "\n";
      return 0;
    }
    if (audit_s > 0) {
      if (!settings.root.empty())
        throw mm::UsageError("--audit", "found with --root, which has no counters", "this machine");
      settings.sources = {"counters", "resctrl"};
    }
    mm::watch::Sampler sampler(settings);
    if (audit_s > 0) {
      std::cout << mm::to_line(sampler.header()) << "\n";
      mm::watch::AuditPlan plan;
      plan.load_s = audit_s;
      mm::watch::audit(sampler, plan, [](const std::string& line) { std::cout << line << std::flush; });
      return 0;
    }
    struct sigaction act{};
    act.sa_handler = on_signal;  // without SA_RESTART, so that a signal interrupts the sleep; until here, signals end
                                 // the program at once
    for (const int s : {SIGINT, SIGTERM, SIGHUP}) sigaction(s, &act, nullptr);
    mm::watch::Outlet out(STDOUT_FILENO);
    if (describe) {
      out.line(mm::to_line(sampler.header()) + "\n");
      out.flush();
    } else {
      sampler.run(out, stop);
    }
  } catch (const mm::json::exception&) {  // the content of these two files is validated on use
    throw mm::UsageError("--attained, --canary", "found an object with other content",
                         "files that meshmark wrote for these options");
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return mm::enter("meshmark-watch", [&] {
    try {
      return answer(argc, argv);
    } catch (const std::exception& error) {
      return mm::print_ending("meshmark-watch", mm::ending_of(error));
    }
  });
}
