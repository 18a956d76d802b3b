/// One layout in many syntaxes and back, LSF's variables and affinity[…], and the precedence of settings.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "place/syntax.hpp"

namespace {

using namespace mm::place;
using mm::Cpu, mm::Machine, mm::Node, mm::machine_of;
using Parts = std::vector<std::vector<int>>;
using Environment = std::vector<std::pair<std::string, std::string>>;

Machine two_by_four() { return machine_of("pack:2 [numa] core:4 pu:1"); }
// Linux's numbering of a machine with two threads per core: 0-3 are the first threads, 4-7 the second.
Machine threads_last() { return machine_of("pack:2 [numa] core:2 pu:2(indexes=0,4,1,5,2,6,3,7)"); }

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const mm::UsageError& wrong) {
    return wrong.field + ": " + wrong.what() + "; " + wrong.allowed;
  } catch (const Busy& busy) {
    return std::string("busy: ") + busy.what();
  }
  return "";
}

std::string first_line(const std::string& form, const Machine& machine, const Parts& parts, const Memory& memory = {}) {
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
  EXPECT_EQ(parse("likwid", machine, "3,0-1").parts, (Parts{{6}, {1}, {2}}));
  EXPECT_EQ(parse("hwloc", machine, "core:0 pu:3").parts, (Parts{{1, 5, 6}}));
  EXPECT_EQ(parse("numactl", machine, "+1-2").parts, (Parts{{2, 5}}));
  EXPECT_NE(complaint([&] { parse("likwid", machine, "4"); }).find("number 4"), std::string::npos);
  EXPECT_NE(complaint([&] { parse("openmpi5", machine, "rank 0=a slot=4"); }).find("number 4"), std::string::npos);
}

TEST(PlaceSyntax, RanksThatShareCpusAreMeantTo) {
  const std::string line = first_line("openmpi5", threads_last(), {{0, 4}, {4}});
  EXPECT_NE(line.find("-np 2 --bind-to hwthread:overload-allowed --map-by"), std::string::npos) << line;
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
  for (const auto& c : cases) EXPECT_EQ(parse(c.form, machine, c.text).parts, c.want) << c.form << " " << c.text;
}

TEST(PlaceSyntax, MasksMayHaveAnyWidth) {
  const Machine machine = machine_of("pack:4 [numa] core:64 pu:1");
  EXPECT_EQ(first_line("slurm-mask", machine, {{0, 65, 255}}),
            "srun -n 1 --cpu-bind=mask_cpu:0x8" + std::string(46, '0') + "2" + std::string(15, '0') + "1 ./a.out");
  EXPECT_EQ(parse("taskset", machine, "0x80000000,00000002,,1").parts, (Parts{{0, 65, 127}}));
  EXPECT_EQ(parse("hwloc", machine, "0x80000000,0x00000002,0x0,0x1").parts, (Parts{{0, 65, 127}}));
  EXPECT_EQ(parse("flux", machine, "map:0x2,0x0;0x1").parts, (Parts{{33}, {0}}));
}

// Sockets × nodes × L3 × cores × threads, numbered in order, threads last, round-robin over sockets, or at random.
Machine random_machine(std::mt19937& random) {
  const auto any = [&](std::initializer_list<int> of) { return of.begin()[random() % of.size()]; };
  const int packages = any({1, 2, 4}), nodes = any({1, 2}), l3 = any({1, 2, 4}), cores = any({1, 2, 3, 8}),
            threads = any({1, 2, 4}), all = packages * nodes * l3 * cores * threads, how = any({0, 1, 2, 3});
  const auto steps = [&](int inner, int of) {
    return "(indexes=" + std::to_string(inner) + "*" + std::to_string(of) + ":1*" + std::to_string(inner) + ")";
  };
  const std::string indexes = how == 1 && threads > 1 && threads < all     ? steps(all / threads, threads)
                              : how == 2 && packages > 1 && packages < all ? steps(packages, all / packages)
                                                                           : "";
  Machine machine =
      machine_of("pack:" + std::to_string(packages) + " numa:" + std::to_string(nodes) + " l3:" + std::to_string(l3) +
                 " core:" + std::to_string(cores) + " pu:" + std::to_string(threads) + indexes);
  if (how == 3) {  // more than a description can express
    std::vector<int> index(static_cast<std::size_t>(all));
    std::iota(index.begin(), index.end(), 0);
    std::shuffle(index.begin(), index.end(), random);
    for (Cpu& cpu : machine.cpus) cpu.id = index[static_cast<std::size_t>(cpu.id)];
    std::sort(machine.cpus.begin(), machine.cpus.end(), [](const Cpu& x, const Cpu& y) { return x.id < y.id; });
  }
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
        const Form made = emit(form, machine, layout, parts ? Memory{} : Memory{"bind", {}, {}, "default"});
        const std::string text = line(made, parts ? "" : "./a.out");
        EXPECT_EQ(parse(form, machine, text).parts, layout.parts) << form << " " << text;
        EXPECT_EQ(parse(form, machine, bare(emit(form, machine, layout, {}))).parts, layout.parts) << form;
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
      {"hwloc", "-p core:0", "'core:0'"},
      {"hwloc", "0xf...f", "'0xf...f'"},
      {"hwloc", "--membind node:0", "node:0'"},
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

TEST(PlaceSettings, LsfsVariablesAreAccepted) {
  const struct {
    Environment environment;
    const char *bind, *from;
  } cases[] = {
      {{}, "", ""},
      {{{"LSB_USER_BIND_JOB", "Y"}}, "balance", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "n"}}, "none", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "NONE"}}, "none", "bind: LSB_USER_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "pack"}}, "pack", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "USER"}, {"LSB_USER_BIND_JOB", "ANY"}}, "any", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "PACK"}, {"LSB_USER_BIND_JOB", "PACK"}}, "pack", "bind: LSB_USER_BIND_JOB"},
      {{{"BIND_JOB", "BALANCE"}}, "balance", "bind: BIND_JOB"},
      {{{"LSB_USER_BIND_CPU_LIST", "1,2,5,7-9"}}, "list=1,2,5,7-9", "bind: LSB_USER_BIND_CPU_LIST"},
      {{{"LSB_USER_BIND_JOB", "USER_CPU_LIST"}, {"LSB_USER_BIND_CPU_LIST", "4 0"}},
       "list=4,0",
       "bind: LSB_USER_BIND_CPU_LIST"},
      {{{"LSB_BIND_JOB", "BALANCE"}, {"LSB_BIND_CPU_LIST", "0,4"}, {"LSB_USER_BIND_JOB", "BALANCE"}},
       "list=0,4",
       "bind: LSB_BIND_CPU_LIST"},
      {{{"LSB_BIND_JOB", "PACK"}}, "pack", "bind: LSB_BIND_JOB"},
      {{{"LSB_USER_BIND_JOB", "PACK"}, {"MESHMARK_BIND", "compact"}}, "compact", "bind: MESHMARK_BIND"},
      {{{"LSB_USER_BIND_JOB", ""}, {"BIND_JOB", ""}}, "", ""},
      {{{"LSB_EFFECTIVE_RSRCREQ", "select[type == local] order[r15s:pg] rusage[mem=1000.00] span[hosts=1]"}}, "", ""},
      {{{"LSB_EFFECTIVE_RSRCREQ",
         "select[my_affinity[0]] rusage[mem=1] affinity[core(2, same=socket)*1:distribute=pack]"}},
       "affinity[core(2, same=socket)*1:distribute=pack]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "1*{span[hosts=1] affinity[core(1)]}+2*{affinity[core(1)]}"}},
       "affinity[core(1)]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      // LSF ignores BIND_JOB when it schedules by affinity; its decision, and our variables, take precedence.
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]"}, {"LSB_USER_BIND_JOB", "PACK"}},
       "affinity[core(1)]",
       "bind: LSB_EFFECTIVE_RSRCREQ"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]"}, {"LSB_BIND_CPU_LIST", "0,4"}},
       "list=0,4",
       "bind: LSB_BIND_CPU_LIST"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[nonsense]"}, {"MESHMARK_BIND", "pack"}}, "pack", "bind: MESHMARK_BIND"},
      {{{"MESHMARK_BIND", "affinity[core(2)]"}}, "affinity[core(2)]", "bind: MESHMARK_BIND"},
  };
  for (const auto& c : cases) {
    const Settings settings = settings_of_environment(c.environment);
    EXPECT_EQ(settings.bind.value_or(""), c.bind);
    EXPECT_EQ(settings.from, c.from);
    EXPECT_FALSE(settings.kind);
  }
  const Settings both = settings_of_environment({{"EGO_DEFINE_NCPUS", "threads"}, {"BIND_JOB", "ANY"}});
  EXPECT_EQ(both.kind, SlotKind::threads);
  EXPECT_EQ(both.from, "bind: BIND_JOB; slots: EGO_DEFINE_NCPUS");
  EXPECT_EQ(settings_of_environment({{"EGO_DEFINE_NCPUS", "threads"}, {"MESHMARK_SLOTS", "procs"}}).kind,
            SlotKind::procs);
}

TEST(PlaceSettings, ContradictionsAndNonsenseAreRefused) {
  const std::pair<Environment, const char*> cases[] = {
      {{{"LSB_USER_BIND_JOB", "PACK"}, {"LSB_USER_BIND_CPU_LIST", "0"}}, "contradicts LSB_USER_BIND_CPU_LIST='0'"},
      {{{"LSB_USER_BIND_JOB", "NONE"}, {"LSB_USER_BIND_CPU_LIST", "0"}}, "contradicts LSB_USER_BIND_CPU_LIST='0'"},
      {{{"BIND_JOB", "PACK"}, {"LSB_USER_BIND_JOB", "ANY"}}, "contradicts BIND_JOB='PACK'"},
      {{{"LSB_USER_BIND_CPU_LIST", "0"}, {"LSB_BIND_CPU_LIST", "1"}}, "contradicts LSB_BIND_CPU_LIST='1'"},
      {{{"LSB_BIND_JOB", "NONE"}, {"LSB_BIND_CPU_LIST", "1"}}, "contradicts LSB_BIND_CPU_LIST='1'"},
      {{{"BIND_JOB", "USER_CPU_LIST"}}, "LSB_USER_BIND_CPU_LIST: is not set"},
      {{{"LSB_USER_BIND_JOB", "SPREAD"}}, "LSB_USER_BIND_JOB: found 'SPREAD'"},
      {{{"LSB_USER_BIND_CPU_LIST", "1-"}}, "LSB_USER_BIND_CPU_LIST: found"},
      {{{"EGO_DEFINE_NCPUS", "nodes"}}, "EGO_DEFINE_NCPUS: found 'nodes'"},
      {{{"MESHMARK_BIND", "nonsense"}}, "MESHMARK_BIND: "},
      {{{"MESHMARK_SLOTS", "nonsense"}}, "MESHMARK_SLOTS: "},
      {{{"LSB_EFFECTIVE_RSRCREQ", "affinity[crate(1)]"}}, "LSB_EFFECTIVE_RSRCREQ: found 'crate'"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "rusage[mem=1] affinity[core(1)"}},
       "LSB_EFFECTIVE_RSRCREQ: found 'affinity[core(1)', which"},
      {{{"LSB_EFFECTIVE_RSRCREQ", "1*{affinity[core(1)]}+1*{affinity[core(2)]}"}},
       "select one with --bind or MESHMARK_BIND"},
      {{{"MESHMARK_BIND", "affinity[crate]"}}, "MESHMARK_BIND: found 'crate'"},
  };
  for (const auto& [environment, words] : cases) {
    const std::string text = complaint([&, &e = environment] { settings_of_environment(e); });
    EXPECT_NE(text.find(words), std::string::npos) << text << "\nwanted: " << words;
  }
}

// A separate home and site, without the settings of the user who runs the tests.
class PlaceSettle : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("mm-settle-" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "meshmark");
    for (const char* name :
         {"MESHMARK_BIND", "MESHMARK_SLOTS", "LSB_USER_BIND_JOB", "LSB_USER_BIND_CPU_LIST", "BIND_JOB", "LSB_BIND_JOB",
          "LSB_BIND_CPU_LIST", "LSB_EFFECTIVE_RSRCREQ", "EGO_DEFINE_NCPUS"})
      ::unsetenv(name);
    site_ = folder_ / "site.toml";
    ::setenv("MESHMARK_SITE_CONFIG", site_.c_str(), 1);
    ::setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
    site("");
  }
  void TearDown() override {
    for (const char* name : {"MESHMARK_SITE_CONFIG", "XDG_CONFIG_HOME", "MESHMARK_BIND", "EGO_DEFINE_NCPUS"})
      ::unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  void site(const std::string& text) { std::ofstream(site_) << text; }
  void user(const std::string& text) { std::ofstream(folder_ / "meshmark" / "config.toml") << text; }
  std::string refused(const std::string& text) {
    site(text);
    return complaint([] { read_settings("", {}, {}); });
  }
  std::filesystem::path folder_, site_;
};

TEST_F(PlaceSettle, TheLastWordWinsAndIsNamed) {
  EXPECT_FALSE(read_settings("", {}, {}).bind);
  EXPECT_EQ(read_settings("", {}, {}).from, "");
  site("bind = 'any'\nslots = 'procs'\nmemory = 'local'\n[profile.cfd]\nbind = 'pack'\npages = '2MiB'\n");
  user("[profile.cfd]\nbind = 'scatter'\n[profile.mine]\nslots = 'threads'\n");
  Settings settings = read_settings("", {}, {});
  EXPECT_EQ(settings.bind, "any");
  EXPECT_EQ(settings.kind, SlotKind::procs);
  EXPECT_EQ(settings.memory, "local");
  EXPECT_EQ(settings.from, "bind: " + site_.string() + "; memory: " + site_.string() + "; slots: " + site_.string());
  settings = read_settings("cfd", {}, {});
  EXPECT_EQ(settings.bind, "scatter");  // the user's profile with that name takes precedence over the site's
  EXPECT_FALSE(settings.pages);
  EXPECT_NE(settings.from.find("bind: profile cfd of " + folder_.string()), std::string::npos) << settings.from;
  EXPECT_EQ(read_settings("mine", {}, {}).kind, SlotKind::threads);
  ::setenv("MESHMARK_BIND", "balance", 1);
  ::setenv("EGO_DEFINE_NCPUS", "cores", 1);
  settings = read_settings("mine", {}, {});
  EXPECT_EQ(settings.bind, "balance");
  EXPECT_EQ(settings.kind, SlotKind::cores);
  settings = read_settings("mine", "compact", "threads");
  EXPECT_EQ(settings.bind, "compact");
  EXPECT_EQ(settings.kind, SlotKind::threads);
  EXPECT_NE(settings.from.find("bind: --bind"), std::string::npos);
  EXPECT_NE(settings.from.find("slots: --slots"), std::string::npos);
  EXPECT_NE(complaint([] { read_settings("nobody", {}, {}); }).find("--profile: found 'nobody'; cfd, mine"),
            std::string::npos);
}

TEST_F(PlaceSettle, WhatOnlyLsfUnderstandsDoesNoHarmWhereTheCommandLineSaysAPolicy) {
  ::setenv("LSB_EFFECTIVE_RSRCREQ", "affinity[core(1)]", 1);
  EXPECT_EQ(read_settings("", std::nullopt, std::nullopt).bind, "affinity[core(1)]");
  ::setenv("LSB_EFFECTIVE_RSRCREQ", "affinity[crate]", 1);
  EXPECT_EQ(read_settings("", "pack", std::nullopt).bind, "pack");
  EXPECT_THROW(read_settings("", std::nullopt, std::nullopt), mm::UsageError);
  EXPECT_THROW(read_settings("", "user", std::nullopt), mm::UsageError);
  ::unsetenv("LSB_EFFECTIVE_RSRCREQ");
}

TEST_F(PlaceSettle, AWrongFileIsToldInOneLineWithItsKey) {
  const std::pair<const char*, const char*> cases[] = {
      {"[[[bind]]]", "site.toml: "},  // aborts toml++ if its asserts are enabled
      {"bindd = 'any'", "site.toml: bindd: is not a key here; bind, slots, memory, pages, [profile.NAME]"},
      {"bind = 3", "site.toml: bind: is not a string"},
      {"bind = 'nonsense'", "site.toml: bind: "},
      {"slots = 'chairs'", "site.toml: slots: found 'chairs'"},
      {"memory = 'nonsense'", "site.toml: memory: "},
      {"pages = '3MiB'", "site.toml: pages: found '3MiB'; default, 4KiB, thp, 2MiB, 1GiB"},
      {"profile = 1", "site.toml: profile: is not a key here"},
      {"[profile]\nx = 1", "site.toml: profile.x: is not a table"},
      {"[profile.x]\ncolour = 'red'", "site.toml: profile.x.colour: is not a key here"},
      {"\nbind = ", "site.toml: line 2: "},
  };
  for (const auto& [text, words] : cases) {
    const std::string said = refused(text);
    EXPECT_NE(said.find(words), std::string::npos) << said << "\nwanted: " << words;
    EXPECT_EQ(said.find('\n'), std::string::npos) << said;
  }
  site("");
  user("bind = 'any'");
  EXPECT_NE(complaint([] { read_settings("", {}, {}); }).find("config.toml: bind: is not a key here; [profile.NAME]"),
            std::string::npos);
  ::setenv("MESHMARK_SITE_CONFIG", "/proc/none/meshmark.toml", 1);
  EXPECT_NE(complaint([] { read_settings("", {}, {}); }).find("/proc/none/meshmark.toml: found no such file"),
            std::string::npos);
}

Parts placed(const Machine& machine, const char* text, int tasks, const Occupancy& taken = {}) {
  return place(machine, parse_affinity(text, tasks), taken).layout.parts;
}

// The examples of IBM's "Submit jobs with affinity resource requirements", on two sockets of four and of eight cores.
TEST(PlaceAffinity, TheManualsExamples) {
  const Machine small = two_by_four(), large = machine_of("pack:2 [numa] core:8 pu:1");
  EXPECT_EQ(placed(large, "span[hosts=1] affinity[core(1):distribute=pack]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(placed(small, "affinity[core(1):distribute=pack]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_EQ(placed(large, "affinity[core(1):distribute=pack(socket=1)]", 6), (Parts{{0}, {1}, {2}, {3}, {4}, {5}}));
  EXPECT_NE(complaint([&] { placed(small, "affinity[core(1):distribute=pack(socket=1)]", 6); }).find("do not fit"),
            std::string::npos);
  EXPECT_EQ(placed(small, "affinity[core(2, same=socket, exclusive=(socket, injob))]", 2), (Parts{{0, 1}, {4, 5}}));
  EXPECT_EQ(
      placed(small, "affinity[core(2,same=socket,exclusive=(socket,alljobs)):cpubind=socket:distribute=balance]", 4),
      (Parts{{0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(placed(large, "affinity[core(5,same=numa):cpubind=numa:membind=localonly]", 2),
            (Parts{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}}));
}

TEST(PlaceAffinity, WhatIsAskedForIsUnderstood) {
  const Affinity a = parse_affinity(
      "affinity[cpu(2,same=core,exclusive=(mcm,intask|alljobs))*3:cpubind=core:membind=localprefer:distribute=balance]",
      4);
  EXPECT_EQ(a.unit, "thread");
  EXPECT_EQ(a.units_per_task, 6);
  EXPECT_EQ(a.groups_per_task, 3);
  EXPECT_EQ(a.request.slots, 24);
  EXPECT_EQ(a.request.kind, SlotKind::threads);
  EXPECT_EQ(a.same, "core");
  EXPECT_EQ(a.exclusive_level, "numa");
  EXPECT_EQ(a.exclusive_scope, "intask|alljobs");
  EXPECT_TRUE(a.request.exclude);
  EXPECT_EQ(a.cpubind, "core");
  EXPECT_EQ(a.memory.policy, "preferred");
  EXPECT_EQ(a.request.policy, "balance");
  EXPECT_EQ(parse_affinity("affinity[socket]", 1).cpubind, "socket");
  EXPECT_EQ(parse_affinity("affinity[core(2):membind=localonly]", 1).memory.policy, "bind");
  EXPECT_EQ(parse_affinity("affinity[core*2]", 3).request.slots, 6);
}

TEST(PlaceAffinity, UnitsAndMasks) {
  const Machine machine = threads_last();  // cores {0,4} {1,5} | {2,6} {3,7}
  EXPECT_EQ(placed(machine, "affinity[core]", 2), (Parts{{0, 4}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[thread]", 3), (Parts{{0}, {4}, {1}}));
  EXPECT_EQ(placed(machine, "affinity[thread:cpubind=core]", 3), (Parts{{0, 4}, {0, 4}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(core,injob)):distribute=balance]", 3),
            (Parts{{0, 4}, {2, 6}, {1, 5}}));
  EXPECT_EQ(placed(machine, "affinity[numa]", 2), (Parts{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(placed(machine, "affinity[thread(2,same=core)]", 2), (Parts{{0, 4}, {1, 5}}));
  // Two groups of one task that may not share a socket, and one task that spans both.
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(socket,intask))*2]", 1), (Parts{{0, 2, 4, 6}}));
  EXPECT_EQ(placed(machine, "affinity[core(3)]", 1), (Parts{{0, 1, 2, 4, 5, 6}}));
  Machine restricted = machine;
  restricted.allowed = {1, 5, 6, 7};
  EXPECT_EQ(placed(restricted, "affinity[core:cpubind=socket]", 2), (Parts{{1, 5}, {6, 7}}));
}

TEST(PlaceAffinity, OthersJobsAreSeen) {
  const Machine machine = two_by_four();
  const Occupancy taken{{{0, 1}}, {}};
  EXPECT_EQ(placed(machine, "affinity[core:distribute=any]", 1, taken), (Parts{{1}}));
  EXPECT_EQ(placed(machine, "affinity[core:distribute=balance]", 1, taken), (Parts{{4}}));  // the emptier socket
  EXPECT_EQ(placed(machine, "affinity[core(1,exclusive=(socket,alljobs))]", 1, taken), (Parts{{4}}));
  EXPECT_EQ(placed(machine, "affinity[core(4):distribute=pack]", 1, taken), (Parts{{4, 5, 6, 7}}));
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core]", 8, taken); }).find("busy: "), std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core]", 9, taken); }).find("8 cores"), std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core(5,same=socket)]", 1); }).find("do not fit"),
            std::string::npos);
  EXPECT_NE(complaint([&] { placed(machine, "affinity[core(1,exclusive=(socket,injob))]", 3); }).find("do not fit"),
            std::string::npos);
}

TEST(PlaceAffinity, WrongTextIsRefusedAndTheWordNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "''"},
      {"core(2)", "'core(2)'"},
      {"affinity[core(2)", "'affinity[core(2)'"},
      {"affinity[]", "''"},
      {"affinity[die(2)]", "'die'"},
      {"affinity[core(0)]", "'0'"},
      {"affinity[core(2]", "'(2'"},
      {"affinity[core(2,same=l3)]", "'l3'"},
      {"affinity[core(2,same=core)]", "'same=core'"},
      {"affinity[core(2,same=socket,same=numa)]", "'same=numa'"},
      {"affinity[core(2,exclusive=socket)]", "'socket'"},
      {"affinity[socket(1,exclusive=(core,injob))]", "'exclusive=(core,injob)'"},
      {"affinity[core(2,exclusive=(socket,mine))]", "'mine'"},
      {"affinity[core(2)*x]", "'x'"},
      {"affinity[core:cpubind=die]", "'die'"},
      {"affinity[core:membind=far]", "'membind=far'"},
      {"affinity[core:distribute=spread]", "'distribute=spread'"},
      {"affinity[core:distribute=pack(socket=2)]", "'distribute=pack(socket=2)'"},
      {"affinity[core:distribute=any:distribute=pack]", "'distribute=pack'"},
      {"affinity[core:colour=red]", "'colour=red'"},
      {"affinity[core(99999)*9999]", "too many units"},
      {"rusage[mem=1] affinity[core]", "rusage"},
  };
  for (const auto& [text, word] : cases) {
    const std::string said = complaint([&, t = text] { parse_affinity(t, 2); });
    EXPECT_NE(said.find(word), std::string::npos) << text << ": " << said;
  }
}

}  // namespace
