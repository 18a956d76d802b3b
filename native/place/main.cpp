/// meshmark-place: places programs and their pages, and checks that the placement was enforced.
#include "place/binding/bind.hpp"
#include "place/describe.hpp"
#include "place/ledger/ledger.hpp"
#include "place/machine.hpp"
#include "place/mix/verb.hpp"
#include "place/mix/work.hpp"
#include "place/observe.hpp"
#include "place/policy/policy.hpp"
#include "place/run/run.hpp"
#include "place/sample/sample.hpp"
#include "place/syntax.hpp"
#include "program/verbs.hpp"

namespace {

constexpr mm::Verb kVerbs[] = {
    {"run", "place a command; --verify checks that the placement was enforced", mm::place::run_verb},
    {"plan", "show what a policy would do on any machine", mm::place::plan_verb, "place"},
    {"slots", "show which jobs hold which CPUs of this node", mm::place::slots_verb},
    {"sample", "observe running processes at a bounded cost, in JSON", mm::place::sample::sample_verb, "placed"},
    {"placed", "show where a running program and its pages are", mm::place::placed_verb},
    {"migrate", "move a running program's pages", mm::place::migrate_verb},
    {"translate", "translate a layout into another launcher's syntax", mm::place::translate_verb},
    {"mix", "simulate a mix of jobs under a policy, in JSON", mm::place::mix::mix_verb, "load queue"},
    {"work", "use CPU time in several threads, as a job of a mix", mm::place::mix::work_verb, "load queue"},
    {"machine", "describe a machine's topology in JSON", mm::place::machine_verb, "machine show"},
    {"describe", "describe policies, page sizes and metrics in JSON", mm::place::describe_verb},
};

}  // namespace

int main(int argc, char** argv) {
  return mm::run_verb({.name = "meshmark-place",
                       .user = "meshmark",
                       .summary = "Run programs on chosen CPUs and memory nodes, and show where programs run.",
                       .example = "run --bind balance -n 2 --verify -- ./a.out",
                       .verbs = kVerbs},
                      argc, argv);
}
