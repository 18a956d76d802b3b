#include "place/run/options.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/options/arguments.hpp"
#include "base/options/options.hpp"
#include "base/resources/host.hpp"
#include "base/secrets.hpp"
#include "place/command.hpp"

namespace mm::place::job {

bool form_uses_daemon(const std::string& launcher) { return launcher.starts_with("slurm") || launcher == "flux"; }

namespace {

/// Returns the command without secrets. A program that knows more secrets than the environment variables reveal, such
/// as `meshmark measure app`, passes the words in MESHMARK_RECORDED_COMMAND, as a list in JSON; the command does not
/// inherit it.
std::vector<std::string> recorded_command(const std::vector<std::string>& command) {
  const std::string text = variable("MESHMARK_RECORDED_COMMAND");
  ::unsetenv("MESHMARK_RECORDED_COMMAND");
  std::vector<std::string> words;
  const json parsed = json::parse(text, nullptr, false);
  for (const json& word : parsed.is_array() ? parsed : json::array())
    words.push_back(word.is_string() ? word.get<std::string>() : "");
  return without_secrets(words.size() == command.size() ? words : command);
}

}  // namespace

std::optional<Options> read_options(int argc, char** argv) {
  Options o;
  const auto dashes =
      std::find_if(argv, argv + argc, [](const char* argument) { return std::strcmp(argument, "--") == 0; });
  if (dashes != argv + argc) o.command.assign(dashes + 1, argv + argc);

  Arguments app{
      "Run a command on chosen CPUs and memory nodes, and return its exit status. --verify checks that the placement "
      "was enforced.\n"
      "Default policy: that of site, profile or environment; otherwise balance with -n, or none without.\n\n"
      "example: meshmark run --bind pack -n 2 --memory bind --verify -- ./a.out input",
      "meshmark run [OPTIONS] -- COMMAND [ARGUMENTS]"};
  std::string wait, verify, needs;
  bool soft = false;
  app.add("--bind", o.bind, "policy and modifiers (meshmark list policies), user, or LSF's affinity[…]");
  app.add("--slots", o.slots, "unit of allocation: procs, cores, threads [cores]");
  app.add("-n", o.n, "number of slots [with --each, the number of ranks on this node; else the length of a list, or 1]")
      .from(1, 65536);
  app.flag("--each", o.each, "bind each rank or thread to a separate slot, instead of one mask for all");
  app.flag("--openmp", o.openmp, "like --each, with one OpenMP thread per slot");
  app.add("--launcher", o.launcher, "start -n ranks of the command: openmpi, openmpi5, mpich, slurm, slurm-mask, flux");
  app.add("--memory", o.memory, "default, local, bind, preferred, interleave [=NODES], weighted=NODE:WEIGHT,…");
  app.add("--pages", o.pages, "default, 4KiB, thp, 2MiB, 1GiB");
  app.add("--needs", needs, "memory that the command needs; warns if its nodes have less available [5 % of theirs]");
  app.add("--within", o.within, "use only these CPUs [all allowed CPUs]");
  app.add("--matrix", o.matrix, "JSON file with measured distances between nodes");
  app.add("--sharing", o.sharing, "JSON file with the traffic and bandwidth demand of the parts, for --bind sharing");
  app.add("--profile", o.profile, "profile of the configuration to use");
  app.flag("--hard", o.hard, "bind with a cpuset, which the command cannot leave");
  app.flag("--soft", soft, "bind by affinity, which the command can change [default]");
  const Arguments::Option waits =
      app.add("--wait", wait, "wait for reserved CPUs, at most this time [no limit]").may_be_bare();
  app.flag("--no-claim", o.no_claim, "ignore the reservations of this node, and add none");
  const Arguments::Option verifies =
      app.add("--verify", verify, "check the placement; strict: exit with status 3 if it was not enforced")
          .may_be_bare();
  app.add("--record", o.record, "append elapsed, user, system and waiting time to this file (JSON Lines)");
  app.time("--timeout", o.timeout_s, "terminate the command after this time; exit status 124", 1e-9);
  app.flag("--verbose", o.verbose, "print the placement before the command starts");
  try {
    if (!app.read(static_cast<int>(dashes - argv), argv, "run")) return std::nullopt;
  } catch (const UsageError& error) {
    if (dashes != argv + argc) throw;
    throw with_dashes_hint(error, "meshmark run [OPTIONS] -- COMMAND [ARGUMENTS]");
  }
  if (o.command.empty()) throw UsageError("command", "found none", "-- COMMAND [ARGUMENTS] after the options");
  o.recorded = recorded_command(o.command);
  if (waits.given()) o.wait_s = wait.empty() ? kForever : parse_time("wait", wait);
  if (!needs.empty()) o.needed_bytes = parse_size("needs", needs);
  o.verify = verifies.given();
  o.strict = verify == "strict";
  if (!verify.empty() && !o.strict) throw UsageError("verify", "found " + quote(verify), "no value, or strict");
  if (o.hard && soft) throw UsageError("hard", "found together with --soft", "only one of them");
  if (o.hard && o.no_claim)
    throw UsageError("hard", "found together with --no-claim, but the cpuset is removed with the reservation",
                     "only one of them");
  if (o.hard && form_uses_daemon(o.launcher))
    throw UsageError("hard", "found with --launcher " + o.launcher + ": a daemon starts its ranks outside the cpuset",
                     "in each rank: srun --cpu-bind=none … meshmark run --each --hard …");
  if (o.each && !o.launcher.empty())
    throw UsageError("each", "found together with --launcher, which already gives each rank a slot",
                     "only one of them");
  o.each = o.each || o.openmp;
  return o;
}

}  // namespace mm::place::job
