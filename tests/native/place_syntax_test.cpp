/// One layout in many syntaxes and back, and text that is no layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <random>

#include "place/binding/bind.hpp"
#include "place/syntax.hpp"
#include "place_layouts.hpp"

namespace {

using namespace mm::place;
using mm::Machine, mm::machine_of;

std::string first_line(const std::string& form, const Machine& machine, const Parts& parts,
                       const MemoryPolicy& memory = {}) {
  return line(emit(form, machine, {parts}, memory), "./a.out");
}

// The part of a form that carries the layout, without the rest of the line.
std::string bare(const Form& form) {
  if (!form.files.empty()) return form.files[0].second;
  if (!form.environment.empty()) return form.environment[0].second;
  std::string text;
  for (const std::string& word : form.words) text += (text.empty() ? "" : " ") + word;
  return text;
}

TEST(PlaceSyntax, EveryFormIsWhatItsManualShows) {
  const Machine machine = threads_last();
  const Parts parts = {{0, 4}, {1, 5}};
  const std::pair<const char*, const char*> want[] = {
      {"openmpi",
       "printf '%s\\n' 'rank 0=localhost slot=0,4' 'rank 1=localhost slot=1,5' > rankfile && mpirun -np 2 "
       "--use-hwthread-cpus --mca rmaps_rank_file_physical 1 --rankfile rankfile ./a.out"},
      // Logical numbers are core by core: CPUs 0,4 are 0-1.
      {"openmpi5",
       "printf '%s\\n' 'rank 0=localhost slot=0-1' 'rank 1=localhost slot=2-3' > rankfile && mpirun -np 2 "
       "--map-by rankfile:file=rankfile:hwtcpus ./a.out"},
      {"mpich", "mpiexec -n 2 -bind-to user:0+4,1+5 ./a.out"},
      {"slurm", "srun -n 2 --cpu-bind=mask_cpu:0x11,0x22 ./a.out"},
      {"flux", "flux run -n 2 -o 'cpu-affinity=map:0,4;1,5' ./a.out"},
      {"jsrun",
       "printf '%s\\n' 'cpu_index_using: physical' 'rank: 0: { host: 1; cpu: {0,4} }' "
       "'rank: 1: { host: 1; cpu: {1,5} }' > erf && jsrun --erf_input erf ./a.out"},
      {"omp-places", "OMP_PLACES='{0,4},{1,5}' OMP_PROC_BIND=close OMP_NUM_THREADS=2 ./a.out"},
      {"kmp", "KMP_AFFINITY='granularity=fine,proclist=[{0,4},{1,5}],explicit' OMP_NUM_THREADS=2 ./a.out"},
      {"parts", "'0,4;1,5' ./a.out"},
  };
  for (const auto& [form, text] : want) EXPECT_EQ(first_line(form, machine, parts), text) << form;
  const Parts single = {{4}, {1}}, mask = {{0, 1, 2, 5}};
  const std::pair<const char*, const char*> want_single[] = {
      {"slurm", "srun -n 2 --cpu-bind=map_cpu:4,1 ./a.out"},
      {"slurm-mask", "srun -n 2 --cpu-bind=mask_cpu:0x10,0x2 ./a.out"},
      {"gomp", "GOMP_CPU_AFFINITY='4 1' OMP_NUM_THREADS=2 ./a.out"},
      {"kmp", "KMP_AFFINITY='granularity=fine,proclist=[4,1],explicit' OMP_NUM_THREADS=2 ./a.out"},
      {"likwid", "likwid-pin -c 4,1 ./a.out"},
  };
  for (const auto& [form, text] : want_single) EXPECT_EQ(first_line(form, machine, single), text) << form;
  const std::pair<const char*, const char*> want_mask[] = {
      {"lsf", "LSB_USER_BIND_CPU_LIST=0-2,5 bsub -n 1 ./a.out"},
      {"blaunch", "blaunch taskset -c 0-2,5 ./a.out"},
      {"pbsdsh", "pbsdsh -c 1 -- taskset -c 0-2,5 ./a.out"},
      {"hwloc", "hwloc-bind --physical --cpubind pu:0-2 pu:5 -- ./a.out"},
      {"numactl", "numactl --physcpubind=0-2,5 ./a.out"},
      {"taskset", "taskset -c 0-2,5 ./a.out"},
      {"cpuset",
       "printf '%s\\n' 0-2,5 > cpuset.cpus && printf '%s\\n' 0-1 > cpuset.mems && "
       "sh -c 'echo $$ > cgroup.procs && exec \"$@\"' sh ./a.out"},
  };
  for (const auto& [form, text] : want_mask) EXPECT_EQ(first_line(form, machine, mask), text) << form;
}

TEST(PlaceSyntax, LogicalNumbersCountOnlyWhatIsAllowed) {
  Machine machine = threads_last();
  machine.allowed = {1, 2, 5, 6};
  EXPECT_EQ(emit("openmpi5", machine, {{{5}, {2}}}, {}).files[0].second,
            "rank 0=localhost slot=1\nrank 1=localhost slot=2\n");                    // 1 5 2 6
  EXPECT_EQ(first_line("likwid", machine, {{5}, {2}}), "likwid-pin -c 2,1 ./a.out");  // 1 2 5 6
  EXPECT_EQ(parse("likwid", machine, "3,0-1").layout.parts, (Parts{{6}, {1}, {2}}));
  EXPECT_EQ(parse("hwloc", machine, "core:0 pu:3").layout.parts, (Parts{{1, 5, 6}}));
  EXPECT_EQ(parse("numactl", machine, "+1-2").layout.parts, (Parts{{2, 5}}));
  EXPECT_NE(complaint([&] { parse("likwid", machine, "4"); }).find("number 4"), std::string::npos);
  EXPECT_NE(complaint([&] { parse("openmpi5", machine, "rank 0=a slot=4"); }).find("number 4"), std::string::npos);
}

TEST(PlaceSyntax, RanksThatShareCpusAreMeantTo) {
  const std::string line = first_line("openmpi5", threads_last(), {{0, 4}, {4}});
  EXPECT_NE(line.find("-np 2 --bind-to hwthread:overload-allowed --map-by"), std::string::npos) << line;
  EXPECT_EQ(emit("jsrun", threads_last(), {{{0, 4}, {4}}}, {}).files[0].second,
            "cpu_index_using: physical\noverlapping_rs: allow\noversubscribe_cpu: allow\n"
            "rank: 0: { host: 1; cpu: {0,4} }\nrank: 1: { host: 1; cpu: {4} }\n");
  EXPECT_EQ(first_line("pbsdsh", threads_last(), {{0, 4}, {0, 4}}), "pbsdsh -c 2 -- taskset -c 0,4 ./a.out");
}

TEST(PlaceSyntax, MemoryIsSaidByTheLauncherOrByNumactl) {
  const Machine machine = two_by_four();
  const Parts parts = {{0}, {4}};
  EXPECT_EQ(first_line("slurm", machine, parts, {"bind", {}, {}, "default"}),
            "srun -n 2 --cpu-bind=map_cpu:0,4 --mem-bind=mask_mem:0x1,0x2 ./a.out");
  EXPECT_EQ(first_line("slurm", machine, parts, {"bind", {1}, {}, "default"}),
            "srun -n 2 --cpu-bind=map_cpu:0,4 --mem-bind=mask_mem:0x2 ./a.out");
  EXPECT_EQ(first_line("slurm", machine, parts, {"interleave", {}, {}, "default"}),
            "srun -n 2 --cpu-bind=map_cpu:0,4 numactl --interleave=0-1 ./a.out");
  EXPECT_EQ(first_line("mpich", machine, parts, {"preferred", {1}, {}, "thp"}),
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 mpiexec -n 2 -bind-to user:0,4 numactl --preferred=1 ./a.out");
  EXPECT_EQ(first_line("numactl", machine, {{4, 5}}, {"bind", {}, {}, "2MiB"}),
            "GLIBC_TUNABLES=glibc.malloc.hugetlb=2097152 numactl --physcpubind=4-5 --membind=1 ./a.out");
  EXPECT_EQ(first_line("numactl", machine, {{4}}, {"preferred", {0, 1}, {}, "default"}),
            "numactl --physcpubind=4 --preferred-many=0-1 ./a.out");
  EXPECT_EQ(first_line("hwloc", machine, {{4}}, {"bind", {0}, {}, "default"}),
            "hwloc-bind --physical --strict --cpubind pu:4 --membind node:0 --mempolicy bind -- ./a.out");
  EXPECT_EQ(first_line("cpuset", machine, {{4}}, {"bind", {}, {}, "default"}).substr(0, 75),
            "printf '%s\\n' 4 > cpuset.cpus && printf '%s\\n' 1 > cpuset.mems && sh -c 'ec");
  for (const char* form : {"taskset", "numactl", "hwloc", "slurm", "openmpi"})
    EXPECT_NE(complaint([&] { first_line(form, machine, {{4}}, {"weighted", {0}, {1}, "default"}); }).find("weighted"),
              std::string::npos)
        << form;
  EXPECT_NE(complaint([&] { first_line("taskset", machine, {{4}}, {"default", {}, {}, "4KiB"}); }).find("4KiB"),
            std::string::npos);
}

TEST(PlaceSyntax, WhatTheManualsShowIsRead) {
  const Machine machine = threads_last();
  const struct {
    const char *form, *text;
    Parts want;
  } cases[] = {
      {"openmpi", "rank 1=aa slot=1\nrank 0=aa slot=4-5,0 # a comment\n", {{0, 4, 5}, {1}}},
      {"openmpi5", "rank 0=localhost slot=1-2", {{1, 4}}},
      {"mpich", "user:0+1,2+3", {{0, 1}, {2, 3}}},
      {"mpich", "mpiexec.hydra -bind-to user:0-1x2,3 -n 3 ./a", {{0, 1}, {0, 1}, {3}}},
      {"slurm", "map_cpu:0*2,3*2", {{0}, {0}, {3}, {3}}},
      {"slurm", "srun --cpu-bind=verbose,mask_cpu:0x3,C ./a", {{0, 1}, {2, 3}}},
      {"slurm", "map_cpu:0x7", {{7}}},
      {"slurm-mask", "mask_cpu:0x30*2", {{4, 5}, {4, 5}}},
      {"lsf", "LSB_USER_BIND_CPU_LIST=1,2,5-7", {{1, 2, 5, 6, 7}}},
      {"lsf", "0 4 2", {{0, 2, 4}}},
      {"flux", "-o cpu-affinity=verbose,map:0-1;0x30;7", {{0, 1}, {4, 5}, {7}}},
      {"jsrun", "cpu_index_using:physical\nrank: 0-1: { host: n1; cpu: {0-3},{4,6} } : app 0", {{0, 1, 2, 3}, {4, 6}}},
      {"jsrun",
       "# ranks\ncpu_index_using: physical\nrank: {1}: {host: 1; cpu: {1}}\nrank: 0: {host: 1; cpu: 7 }",
       {{7}, {1}}},
      {"blaunch", "blaunch -z n1 taskset 0x11 ./a", {{0, 4}}},
      {"pbsdsh", "pbsdsh -n 1 -- taskset -c 0-2 ./a", {{0, 1, 2}}},
      {"pbsdsh", "pbsdsh -c 2 taskset -c 7 ./a", {{7}, {7}}},
      {"omp-places", "{0:4},{4:4}", {{0, 1, 2, 3}, {4, 5, 6, 7}}},
      {"omp-places", "OMP_PLACES=\"{0:2}:4:2\"", {{0, 1}, {2, 3}, {4, 5}, {6, 7}}},
      {"omp-places", "{7}:3:-2", {{7}, {5}, {3}}},
      {"omp-places", "{0:2:4}, {1,5}", {{0, 4}, {1, 5}}},
      {"omp-places", "cores(3)", {{0, 4}, {1, 5}, {2, 6}}},
      {"omp-places", "threads", {{0}, {4}, {1}, {5}, {2}, {6}, {3}, {7}}},
      {"omp-places", "sockets", {{0, 1, 4, 5}, {2, 3, 6, 7}}},
      {"omp-places", "numa_domains(1)", {{0, 1, 4, 5}}},
      {"omp-places", "ll_caches", {{0, 1, 4, 5}, {2, 3, 6, 7}}},
      {"gomp", "0 3 1-2 4-7:2", {{0}, {3}, {1}, {2}, {4}, {6}}},
      {"gomp", "GOMP_CPU_AFFINITY='0,3'", {{0}, {3}}},
      {"kmp", "KMP_AFFINITY=verbose,granularity=fine,proclist=[7,{4,5},0-2:2],explicit", {{7}, {4, 5}, {0}, {2}}},
      {"hwloc", "pu:0-1 pu:7", {{0, 4, 7}}},
      {"hwloc", "hwloc-bind --physical pu:0 pu:4 -- ./a", {{0, 4}}},
      {"hwloc", "package:1.core:0", {{2, 6}}},
      {"hwloc", "core:odd", {{1, 3, 5, 7}}},
      {"hwloc", "core:3:2", {{0, 3, 4, 7}}},
      {"hwloc", "numanode:1-", {{2, 3, 6, 7}}},
      {"hwloc", "hwloc-bind --cpubind 0x00000011 --membind node:1 --mempolicy bind -- ./a", {{0, 4}}},
      {"likwid", "likwid-pin -c 0,4,1-2 ./a", {{0}, {4}, {1}, {2}}},
      {"numactl", "numactl -C 0-1,7 ./a", {{0, 1, 7}}},
      {"numactl", "!0-5", {{6, 7}}},
      {"numactl", "all", {{0, 1, 2, 3, 4, 5, 6, 7}}},
      {"taskset", "taskset -c 0-6:2 ./a", {{0, 2, 4, 6}}},
      {"taskset", "taskset 11 ./a", {{0, 4}}},
      {"taskset", "0x80", {{7}}},
      {"cpuset", "0-2,7\n", {{0, 1, 2, 7}}},
      {"parts", "0,4;1-2", {{0, 4}, {1, 2}}},
  };
  for (const auto& c : cases) EXPECT_EQ(parse(c.form, machine, c.text).layout.parts, c.want) << c.form << " " << c.text;
}

TEST(PlaceSyntax, MasksMayHaveAnyWidth) {
  const Machine machine = machine_of("pack:4 [numa] core:64 pu:1");
  EXPECT_EQ(first_line("slurm-mask", machine, {{0, 65, 255}}),
            "srun -n 1 --cpu-bind=mask_cpu:0x8" + std::string(46, '0') + "2" + std::string(15, '0') + "1 ./a.out");
  EXPECT_EQ(parse("taskset", machine, "0x80000000,00000002,,1").layout.parts, (Parts{{0, 65, 127}}));
  EXPECT_EQ(parse("hwloc", machine, "0x80000000,0x00000002,0x0,0x1").layout.parts, (Parts{{0, 65, 127}}));
  EXPECT_EQ(parse("flux", machine, "map:0x2,0x0;0x1").layout.parts, (Parts{{33}, {0}}));
}

// Sockets × nodes × L3 × cores × threads, numbered in order, threads last, round-robin over sockets, or at random.
Machine random_machine(std::mt19937& random) {
  const auto any = [&](std::initializer_list<int> of) { return of.begin()[random() % of.size()]; };
  const int packages = any({1, 2, 4}), nodes = any({1, 2}), l3 = any({1, 2, 4}), cores = any({1, 2, 3, 8}),
            threads = any({1, 2, 4}), all = packages * nodes * l3 * cores * threads, how = any({0, 1, 2, 3});
  const auto steps = [&](int inner, int of) {
    return "(indexes=" + std::to_string(inner) + "*" + std::to_string(of) + ":1*" + std::to_string(inner) + ")";
  };
  std::vector<int> order(static_cast<std::size_t>(all));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::string listed;
  for (const int cpu : order) listed += (listed.empty() ? "" : ",") + std::to_string(cpu);
  const std::string indexes = how == 1 && threads > 1 && threads < all     ? steps(all / threads, threads)
                              : how == 2 && packages > 1 && packages < all ? steps(packages, all / packages)
                              : how == 3 && all <= 64                      ? "(indexes=" + listed + ")"
                                                                           : "";
  Machine machine =
      machine_of("pack:" + std::to_string(packages) + " numa:" + std::to_string(nodes) + " l3:" + std::to_string(l3) +
                 " core:" + std::to_string(cores) + " pu:" + std::to_string(threads) + indexes);
  EXPECT_EQ(machine.cpus.size(), static_cast<std::size_t>(all));
  if (random() % 2) {  // a control group contains only some of them
    std::erase_if(machine.allowed, [&](int) { return random() % 3 == 0; });
    if (machine.allowed.empty()) machine.allowed = {machine.cpus[0].id};
  }
  return machine;
}

Layout random_layout(const Machine& machine, std::mt19937& random, bool one_mask, bool one_cpu) {
  const std::size_t most = machine.allowed.size();
  Layout layout;
  layout.parts.resize(one_mask ? 1 : 1 + random() % std::min<std::size_t>(most, 8));
  for (auto& part : layout.parts) {
    std::vector<int> cpus = machine.allowed;
    std::shuffle(cpus.begin(), cpus.end(), random);
    cpus.resize(one_cpu ? 1 : 1 + random() % most);
    std::sort(cpus.begin(), cpus.end());
    part = cpus;
  }
  return layout;
}

// The nodes that a policy allows to a layout; none if those are all, since a control group without a limit has them
// too.
std::vector<int> nodes_of(const Machine& machine, const MemoryPolicy& memory, const Layout& layout) {
  const std::vector<int> nodes = requested_nodes(machine, memory, layout.cpus());
  return nodes.size() == machine.nodes.size() ? std::vector<int>{} : nodes;
}

TEST(PlaceSyntax, EveryFormSurvivesARoundTripOnAHundredMachines) {
  std::mt19937 random(2026);
  std::size_t wide = 0, restricted = 0;
  for (int i = 0; i < 100; ++i) {
    const Machine machine = random_machine(random);
    wide += machine.cpus.size() > 64;
    restricted += machine.allowed.size() < machine.cpus.size();
    for (const auto& [form, help] : forms()) {
      const bool one_cpu = form == "gomp" || form == "likwid";
      for (int j = 0; j < 3; ++j) {
        const Layout layout = random_layout(machine, random, one_mask_only(form), one_cpu || j == 0);
        const bool parts = form == "parts";  // expresses CPUs only
        const MemoryPolicy bind{"bind", {}, {}, "default"};
        const Form emitted = emit(form, machine, layout, parts ? MemoryPolicy{} : bind);
        const std::string text = line(emitted, parts ? "" : "./a.out");
        const Parsed again = parse(form, machine, text);
        EXPECT_EQ(again.layout.parts, layout.parts) << form << " " << text;
        EXPECT_EQ(again.left_out, std::vector<std::string>()) << form << " " << text;
        if (!parts) {
          EXPECT_EQ(nodes_of(machine, again.memory, layout), nodes_of(machine, bind, layout)) << form << " " << text;
          EXPECT_EQ(again.command, "./a.out") << form << " " << text;
        }
        EXPECT_EQ(parse(form, machine, bare(emit(form, machine, layout, {}))).layout.parts, layout.parts) << form;
      }
    }
  }
  EXPECT_GE(wide, 20U);
  EXPECT_GE(restricted, 20U);
}

TEST(PlaceSyntax, AFormThatCannotSayALayoutNamesThoseThatCan) {
  const Machine machine = threads_last();
  for (const auto& known : forms()) {
    const std::string& form = known.first;
    if (!one_mask_only(form)) continue;
    const std::string text = complaint([&] { first_line(form, machine, {{0}, {1}}); });
    EXPECT_NE(text.find("openmpi, openmpi5, mpich, slurm"), std::string::npos) << form << ": " << text;
    EXPECT_EQ(complaint([&] { first_line(form, machine, {{0, 1}, {0, 1}}); }), "");
  }
  for (const char* form : {"gomp", "likwid"})
    EXPECT_NE(complaint([&] { first_line(form, machine, {{0}, {1, 5}}); }).find("1,5; omp-places, kmp"),
              std::string::npos);
  EXPECT_NE(complaint([&] { first_line("taskset", machine, {{99}}); }).find("CPU 99"), std::string::npos);
  EXPECT_NE(complaint([&] { first_line("taskset", machine, {}); }).find("no parts"), std::string::npos);
  EXPECT_NE(complaint([&] { first_line("pbs", machine, {{0}}); }).find("'pbs'; openmpi"), std::string::npos);
  Machine restricted = machine;
  restricted.allowed = {1, 2};
  EXPECT_NE(complaint([&] { first_line("likwid", restricted, {{0}}); }).find("CPU 0 is not allowed; CPUs 1-2"),
            std::string::npos);
  EXPECT_NE(complaint([&] { first_line("openmpi5", restricted, {{0}}); }).find("CPU 0 is not among them; CPUs 1-2"),
            std::string::npos);
}

TEST(PlaceSyntax, WrongTextIsRefusedAndTheWordNamed) {
  const Machine machine = threads_last();
  const struct {
    const char *form, *text, *word;
  } cases[] = {
      {"openmpi", "rank 0=a", "'rank'"},
      {"openmpi", "", "''"},
      {"openmpi", "rank 0=a slot=8", "CPU 8"},
      {"openmpi", "rank 0=a slot=0:1", "'0:1'"},
      {"openmpi", "rank 1=a slot=0", "rank 0"},
      {"openmpi", "rank 0=a slot=0 rank 1=b slot=1", "'1=b'"},
      {"openmpi", "rank 0=a slot=0 rank 0=a slot=1", "'0=a'"},
      {"openmpi5", "rank 0=a slot=8", "number 8"},
      {"mpich", "user:0+,1", "''"},
      {"mpich", "user:0x0", "'0x0'"},
      {"mpich", "core", "'core'"},
      {"slurm", "cores", "'cores'"},
      {"slurm", "map_cpu:0-3", "'0-3'"},
      {"slurm", "mask_cpu:0xg", "'0xg'"},
      {"slurm", "mask_cpu:0x0", "'0x0'"},
      {"slurm", "mask_cpu:0x100", "CPU 8"},
      {"slurm", "map_cpu:0*x", "'x'"},
      {"lsf", "1,2,x", "'x'"},
      {"flux", "map:0;;1", "''"},
      {"flux", "per-task", "'per-task'"},
      {"jsrun", "rank: 0: { host: 1; cpu: {0} }", "cpu_index_using: physical"},
      {"jsrun", "cpu_index_using: logical\nrank: 0: { host: 1; cpu: {0} }", "logical numbers"},
      {"jsrun", "cpu_index_using: physical", "no rank"},
      {"jsrun", "cpu_index_using: physical\n2 : { host: 1; cpu: {0} }", "'2 : { host: 1; cpu: {0} }'"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {0-1},{2-3} }", "differ in number"},
      {"jsrun", "cpu_index_using: physical\nrank: 0-1: { host: 1; cpu: {0-1} }", "differ in number"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {8} }", "CPU 8"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {0-6:2} }", "'{0-6:2}'"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {0},}", "'{0},'"},
      {"jsrun", "cpu_index_using: physical\nrank: 1: { host: 1; cpu: {0} }", "rank 0 is missing"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { cpu: {0} }", "'rank:0:{cpu:{0}}'"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: {1-2}; cpu: {0} }", "host '{1-2}'"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {0} }\nrank: 1: { host: 2; cpu: {1} }",
       "host '2'; one host"},
      {"jsrun", "cpu_index_using: physical\nrank: 0: { host: 1; cpu: {0} }\nrank: 0: { host: 1; cpu: {1} }", "rank:0:"},
      {"jsrun", "app 0: ./a\ncpu_index_using: physical\nrank: 0: { host: 1; cpu: {0} }", "'app 0: ./a'"},
      {"jsrun", "jsrun -n 2 -c 4 -b packed:4 ./a", "jsrun selects the CPUs itself"},
      {"blaunch", "0-3", "blaunch itself binds nothing"},
      {"blaunch", "blaunch n1 ./a taskset -c 0", "no taskset"},
      {"blaunch", "blaunch taskset -c 8 ./a", "CPU 8"},
      {"pbsdsh", "pbsdsh -c 2 ./a", "pbsdsh itself binds nothing"},
      {"pbsdsh", "pbsdsh -c 0 taskset -c 0 ./a", "'0'"},
      {"omp-places", "{0,4", "'{0,4'"},
      {"omp-places", "{0}{1}", "'{0}{1}'"},
      {"omp-places", "{!0}", "'!0}'"},
      {"omp-places", "{0:9}", "CPU 8"},
      {"omp-places", "nodes", "'nodes'"},
      {"omp-places", "cores(0)", "'cores(0)'"},
      {"omp-places", "{0:9:0,1}:1048576:0", "too many"},
      {"slurm", "mask_cpu:0xff*1000000", "too many"},
      {"omp-places", "{1:3:1048576}", "CPU 1048576"},
      {"omp-places", "{0}:3:-1", "CPU -1"},
      {"gomp", "0 1 3-1", "'3-1'"},
      {"gomp", "0-6:0", "'0-6:0'"},
      {"kmp", "granularity=fine,compact", "compact'"},
      {"kmp", "proclist=[{0,1],explicit", "'{0,1'"},
      {"hwloc", "pu:8", "'pu:8'"},
      {"hwloc", "disk:0", "'disk:0'"},
      {"hwloc", "-p core:9", "'core:9'"},
      {"hwloc", "0xf...f0", "'0xf...f0'"},
      {"likwid", "-c S0:0-1", "'S0:0-1'"},
      {"numactl", "+8", "number 8"},
      {"numactl", "netdev:eth0", "'netdev:eth0'"},
      {"numactl", "!all", "'all'"},
      {"taskset", "-c 0;1", "'0;1'"},
      {"taskset", "99999999999999999999", "'99999999999999999999'"},
      {"cpuset", "0-1048577", "'0-1048577'"},
      {"parts", "0;a", "'a'"},
  };
  for (const auto& c : cases) {
    const std::string text = complaint([&] { parse(c.form, machine, c.text); });
    EXPECT_NE(text.find(c.word), std::string::npos) << c.form << " '" << c.text << "': " << text;
    EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  }
}

}  // namespace
