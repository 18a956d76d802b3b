#include "program/instruments.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "base/harness/instrument.hpp"
#include "base/harness/output.hpp"
#include "base/harness/provenance.hpp"
#include "base/harness/run_state.hpp"
#include "base/topology/topology.hpp"
#include "program/applications.hpp"
#include "program/entry.hpp"

namespace mm {
namespace {

std::string program_name;

void print_line(const std::string& text) {
  if (!muted()) std::fprintf(stderr, "%s: %s\n", program_name.c_str(), text.c_str());
}

std::string names() {
  std::string all;
  for (const Instrument* i : instruments()) all += (all.empty() ? "" : ", ") + i->description.name;
  return all;
}

/// Returns whether `name` is an application that this program does not contain.
bool is_application_elsewhere(std::string_view name) {
  return std::ranges::find(kApplications, name) != kApplications.end() &&
         std::ranges::none_of(instruments(), [&](const Instrument* i) { return i->description.name == name; });
}

/// Executes the program of the applications, PROGRAM-apps, in place of this one. Returns 77 if it was not built.
int execute_applications(char** argv) {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string() + "-apps";
  execv(path.c_str(), argv);
  print_line("absent: " + std::string(argv[1]) + " is an application, which this installation does not include");
  if (!muted()) std::fputs("hint: make setup APPS=yes\n", stderr);
  return 77;
}

std::string unit_of(const Parameter& p) {
  return (p.unit.empty() ? "" : " (" + p.unit + ")") + (p.default_value.empty() ? "" : " [" + p.default_value + "]");
}

void end_line(const Run::State& s, const char* status) {
  emit(json{{"type", "end"},
            {"status", status},
            {"elapsed_s", wall_s() - s.started_s},
            {"points", s.points},
            {"resumed", s.resumed},
            {"overhead", s.worst_overhead}});
}

void print_plan(const PlannedRun& plan) {
  json line{{"type", "plan"},
            {"relative_points", plan.relative_points},
            {"memory_scale", plan.memory_scale},
            {"budget_s", plan.budget_s}};
  if (plan.memory_bytes) line["memory_bytes"] = *plan.memory_bytes;
  emit(line);
}

int measure(const Instrument& instrument, Run::State& s, bool only_plan, const Front& front) {
  s.started_s = wall_s();
  Run run(s);
  try {
    if (s.values["machine"].empty()) s.values["machine"] = machine_id();
    s.machine = s.values["machine"];
    s.budget_end_s = s.started_s + run.budget_s();
    run.check();
    if (only_plan) {
      print_plan(run.plan());
      return 0;
    }
    if (front.begin) front.begin(run);
    if (!muted() && !s.values["resume"].empty()) s.load_earlier(s.values["resume"]);
    instrument.measure(run);
    s.write_header(0);
    const bool has_no_result = s.results == 0 && s.resumed == 0;
    end_line(s, has_no_result ? "absent" : "ok");
    if (has_no_result && s.absences > 0) print_line("nothing was measured; the reasons are on standard output");
    return has_no_result ? 77 : 0;
  } catch (const UsageError& e) {
    return report_error(program_name, e);
  } catch (const Absent& e) {
    try {
      run.absent("", json::object(), e.what(), e.enable);
      end_line(s, "absent");
    } catch (const Failure&) {
      return 1;
    }
    print_line(std::string("absent: ") + e.what());
    return 77;
  } catch (const std::exception& e) {
    if (front.fail) front.fail(message_of(e));
    return report_error(program_name, e);
  }
}

int respond(int argc, char** argv, const Front& front) {
  std::signal(SIGPIPE, SIG_IGN);  // report a closed pipe as an error
  program_name = front.name;
  if (argc > 1 && is_application_elsewhere(argv[1])) return execute_applications(argv);
  CLI::App app{front.summary, front.name};
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", kBuild);
  bool describe_all = false;
  app.add_flag("--describe", describe_all, "describe every instrument in JSON");

  std::map<std::string, Run::State> states;
  std::map<std::string, bool> describe_one, plan_one;
  for (const Instrument* instrument : instruments()) {
    const Description& d = instrument->description;
    Run::State& s = states[d.name];
    s.description = &d;
    s.parameters = d.parameters;
    for (const Parameter& c : common_parameters(d)) {
      bool overridden = false;
      for (const Parameter& p : d.parameters) overridden = overridden || p.name == c.name;
      if (!overridden) s.parameters.push_back(c);
    }
    CLI::App* sub = app.add_subcommand(d.name, d.summary);
    sub->add_flag("--describe", describe_one[d.name], "describe this instrument in JSON");
    sub->add_flag("--plan", plan_one[d.name], "check all parameters and print the budget in JSON, without measuring");
    for (const Parameter& p : s.parameters) {
      std::string& value = s.values[p.name];
      value = p.default_value;
      if (p.kind == Kind::flag)
        sub->add_flag_callback(option_of(p), [&value] { value = "true"; }, p.help);
      else
        sub->add_option(option_of(p), value, p.help + unit_of(p));
    }
    if (!d.detail.empty()) sub->footer(d.detail);
  }

  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help, --version
  } catch (const CLI::ParseError& e) {
    const std::string first = argc > 1 ? argv[1] : "";
    const bool unknown = app.get_subcommands().empty() && !first.empty() && first[0] != '-';
    return report_error(program_name, unknown ? UsageError("instrument", "found " + quote(first), names())
                                              : UsageError("options", shown_message(e.what()), "see --help"));
  }
  if (describe_all) {
    json all = json::array();
    for (const Instrument* i : instruments()) all.push_back(describe(i->description));
    std::cout << all.dump(1) << '\n';
    return 0;
  }
  for (const Instrument* instrument : instruments()) {
    const std::string& name = instrument->description.name;
    const CLI::App* sub = app.get_subcommand(name);
    if (!sub->parsed()) continue;
    if (describe_one[name]) {
      std::cout << describe(instrument->description).dump(1) << '\n';
      return 0;
    }
    Run::State& s = states[name];
    s.command = name;
    for (const Parameter& p : s.parameters)
      if (sub->get_option(option_of(p))->count() > 0) {
        s.was_given[p.name] = true;
        if (p.name == "resume" || p.name == "machine") continue;
        s.command += ' ' + option_of(p);
        if (p.kind != Kind::flag) s.command += ' ' + s.values[p.name];
      }
    const int status = measure(*instrument, s, plan_one[name], front);
    return front.end && !plan_one[name] ? front.end(status) : status;
  }
  return report_error(program_name, UsageError("instrument", "none was given", names()));
}

}  // namespace

int answer(int argc, char** argv, const Front& front) {
  return enter(front.name, [&] { return respond(argc, argv, front); });
}

}  // namespace mm
