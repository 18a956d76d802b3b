/// meshmark-probe: asks one question of the machine and answers in JSON Lines.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/instrument.hpp"
#include "base/output.hpp"
#include "base/run_state.hpp"
#include "build_info.hpp"

namespace {

void say_error(const mm::json& line, const std::string& text) {
  try {
    mm::emit(line);
  } catch (const mm::Failure&) {
    // Nobody reads standard output any more; standard error still gets the one line.
  }
  std::fprintf(stderr, "meshmark-probe: error: %s\n", text.c_str());
}

mm::json error_line(const mm::json& field, const std::string& message, const mm::json& allowed) {
  return mm::json{{"type", "error"}, {"field", field}, {"message", message}, {"allowed", allowed}};
}

int usage_error(const mm::UsageError& e) {
  say_error(error_line(e.field, e.what(), e.allowed.empty() ? mm::json(nullptr) : mm::json(e.allowed)),
            e.field + ": " + e.what() + (e.allowed.empty() ? "" : "; allowed: " + e.allowed));
  return 2;
}

std::string names() {
  std::string all;
  for (const mm::Instrument* i : mm::instruments()) all += (all.empty() ? "" : ", ") + i->description.name;
  return all;
}

std::string unit_of(const mm::Parameter& p) {
  return (p.unit.empty() ? "" : " (" + p.unit + ")") + (p.fallback.empty() ? "" : " [" + p.fallback + "]");
}

void end_line(const mm::Run::State& s, const char* status) {
  mm::emit(mm::json{{"type", "end"},
                    {"status", status},
                    {"elapsed_s", mm::wall_s() - s.started_s},
                    {"points", s.points},
                    {"resumed", s.resumed},
                    {"overhead", s.worst_overhead}});
}

int measure(const mm::Instrument& instrument, mm::Run::State& s, bool only_check) {
  s.started_s = mm::wall_s();
  mm::Run run(s);
  try {
    if (s.values["machine"].empty()) s.values["machine"] = mm::host_name();
    s.machine = s.values["machine"];
    s.budget_end_s = s.started_s + run.budget_s();
    run.check();
    if (only_check) return 0;
    if (!s.values["resume"].empty()) s.load_earlier(s.values["resume"]);
    instrument.measure(run);
    s.write_header(0);
    const bool nothing = s.results == 0 && s.resumed == 0;
    end_line(s, nothing ? "absent" : "ok");
    if (nothing && s.absences > 0)
      std::fprintf(stderr, "meshmark-probe: nothing could be measured; the reasons are on standard output\n");
    return nothing ? 77 : 0;
  } catch (const mm::UsageError& e) {
    return usage_error(e);
  } catch (const mm::Absent& e) {
    try {
      run.absent("", mm::json::object(), e.what(), e.enable);
      end_line(s, "absent");
    } catch (const mm::Failure&) {
      return 1;
    }
    std::fprintf(stderr, "meshmark-probe: absent: %s\n", e.what());
    return 77;
  } catch (const std::exception& e) {
    say_error(error_line(nullptr, e.what(), nullptr), e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error to report, not a silent death
  CLI::App app{
      "Asks one question of this machine and answers in JSON Lines.\n"
      "example: meshmark-probe latency --footprint 16KiB..64MiB --cpus 0",
      "meshmark-probe"};
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string(MM_VERSION));
  bool describe_all = false;
  app.add_flag("--describe", describe_all, "describe every instrument in JSON");

  std::map<std::string, mm::Run::State> states;
  std::map<std::string, bool> describe_one, check_one;
  for (const mm::Instrument* instrument : mm::instruments()) {
    const mm::Description& d = instrument->description;
    mm::Run::State& s = states[d.name];
    s.description = &d;
    s.parameters = d.parameters;
    for (const mm::Parameter& c : mm::common_parameters()) {
      bool own = false;
      for (const mm::Parameter& p : d.parameters) own = own || p.name == c.name;
      if (!own) s.parameters.push_back(c);
    }
    CLI::App* sub = app.add_subcommand(d.name, d.summary);
    sub->add_flag("--describe", describe_one[d.name], "describe this instrument in JSON");
    sub->add_flag("--check", check_one[d.name], "read all parameters, measure nothing");
    for (const mm::Parameter& p : s.parameters) {
      std::string& value = s.values[p.name];
      value = p.fallback;
      if (p.kind == mm::Kind::flag)
        sub->add_flag_callback(mm::option_of(p), [&value] { value = "true"; }, p.help);
      else
        sub->add_option(mm::option_of(p), value, p.help + unit_of(p));
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
    return usage_error(unknown ? mm::UsageError("instrument", "found '" + first + "'", names())
                               : mm::UsageError("options", e.what(), "see --help"));
  }
  if (describe_all) {
    mm::json all = mm::json::array();
    for (const mm::Instrument* i : mm::instruments()) all.push_back(mm::describe(i->description));
    std::cout << all.dump(1) << '\n';
    return 0;
  }
  for (const mm::Instrument* instrument : mm::instruments()) {
    const std::string& name = instrument->description.name;
    const CLI::App* sub = app.get_subcommand(name);
    if (!sub->parsed()) continue;
    if (describe_one[name]) {
      std::cout << mm::describe(instrument->description).dump(1) << '\n';
      return 0;
    }
    mm::Run::State& s = states[name];
    s.command = name;
    for (const mm::Parameter& p : s.parameters)
      if (sub->get_option(mm::option_of(p))->count() > 0) {
        s.was_given[p.name] = true;
        if (p.name == "resume" || p.name == "machine") continue;
        s.command += ' ' + mm::option_of(p);
        if (p.kind != mm::Kind::flag) s.command += ' ' + s.values[p.name];
      }
    return measure(*instrument, s, check_one[name]);
  }
  return usage_error(mm::UsageError("instrument", "none was given", names()));
}
