/// Command lines as users paste them: every option is translated or named as left out.
#include <gtest/gtest.h>

#include "place/binding/bind.hpp"
#include "place/syntax.hpp"
#include "place_layouts.hpp"

namespace {

using namespace mm::place;
using mm::Machine, mm::machine_of;
using Words = std::vector<std::string>;

TEST(PlacePastedLines, MemoryOptionsAreRead) {
  const Machine machine = two_by_four();
  const struct {
    const char *form, *text;
    Parts parts;
    const char* memory;
    Words left_out;
  } cases[] = {
      {"numactl", "--physcpubind=0-3 --membind=1", {{0, 1, 2, 3}}, "bind=1", {}},
      {"numactl", "numactl --physcpubind=0-3 --interleave=all ./a.out", {{0, 1, 2, 3}}, "interleave=0-1", {}},
      {"numactl", "-N 0 -m 0", {{0, 1, 2, 3}}, "bind=0", {}},
      {"numactl", "--cpunodebind=1 --preferred=0", {{4, 5, 6, 7}}, "preferred=0", {}},
      {"numactl", "-N1 -P0,1 ./a", {{4, 5, 6, 7}}, "preferred=0-1", {}},
      {"numactl", "-N !1 -l", {{0, 1, 2, 3}}, "local", {}},
      {"numactl", "--cpunode=+1 --mem 1", {{4, 5, 6, 7}}, "bind=1", {}},
      {"numactl", "-i0-1 ./a", {{0, 1, 2, 3, 4, 5, 6, 7}}, "interleave=0-1", {}},
      {"numactl", "-N 0 -b -m 0,1 --touch ./a", {{0, 1, 2, 3}}, "bind=0-1", {"-b", "--touch"}},
      {"numactl",
       "-N all --weighted-interleave=0-1 ./a",
       {{0, 1, 2, 3, 4, 5, 6, 7}},
       "default",
       {"--weighted-interleave=0-1"}},
      {"taskset", "taskset -c 0,4 numactl --membind=1 ./a", {{0, 4}}, "bind=1", {}},
      {"taskset", "taskset -apc 1-2 4711", {{1, 2}}, "default", {"-p 4711", "-a"}},
      {"likwid", "likwid-pin -c 4,5 -i ./a", {{4}, {5}}, "interleave", {}},
      {"likwid", "likwid-pin -m -S -c 4 ./a", {{4}}, "bind", {"-S"}},
      {"likwid", "likwid-perfctr -C 0 -g MEM -m ./a", {{0}}, "default", {"-g MEM", "-m"}},
      {"omp-places",
       "OMP_PLACES={0},{4} OMP_NUM_THREADS=2 OMP_SCHEDULE=static numactl -m 1 ./a",
       {{0}, {4}},
       "bind=1",
       {"OMP_SCHEDULE=static"}},
      {"gomp", "GOMP_CPU_AFFINITY=0-3 OMP_NUM_THREADS=2 ./a", {{0}, {1}}, "default", {}},
      {"kmp",
       "KMP_AFFINITY=norespect,granularity=fine,proclist=[1,2],explicit ./a",
       {{1}, {2}},
       "default",
       {"norespect"}},
      {"slurm", "srun -n 2 --cpu-bind=map_cpu:0,4 --mem-bind=mask_mem:0x1,0x2 ./a", {{0}, {4}}, "bind", {}},
      {"slurm", "srun -n 2 --cpu-bind=map_cpu:0,4 --mem-bind=mask_mem:0x3 ./a", {{0}, {4}}, "bind=0-1", {}},
      {"slurm", "srun -n2 --cpu-bind=v,map_cpu:0,4 --mem-bind=prefer,map_mem:1 ./a", {{0}, {4}}, "preferred=1", {}},
      {"slurm", "srun -n 3 --cpu-bind=map_cpu:0,4 --mem-bind=local ./a", {{0}, {4}, {0}}, "local", {}},
      {"slurm",
       "srun --cpu-bind=map_cpu:0,4 --mem-bind=map_mem:1,0 ./a",
       {{0}, {4}},
       "default",
       {"--mem-bind=map_mem:1,0"}},
      {"slurm", "SLURM_CPU_BIND=quiet,mask_cpu:0xf SLURM_MEM_BIND=quiet,mask_mem:0x2", {{0, 1, 2, 3}}, "bind=1", {}},
      {"slurm",
       "srun -N 1 --time=10 -m block --cpu-bind=map_cpu:0 numactl -m 1 ./a",
       {{0}},
       "bind=1",
       {"-N 1", "--time=10", "-m block"}},
      {"openmpi",
       "printf '%s\\n' 'rank 0=localhost slot=0,4' > rf && mpirun -np 1 --report-bindings --use-hwthread-cpus "
       "--mca rmaps_rank_file_physical 1 --mca btl self --rankfile rf numactl -i 0,1 ./a",
       {{0, 4}},
       "interleave=0-1",
       {"--report-bindings", "--mca btl self"}},
      {"mpich",
       "mpiexec -genv A 1 -n 3 -membind local -bind-to user:0,4 ./a",
       {{0}, {4}, {0}},
       "default",
       {"-genv A 1", "-membind local"}},
      {"flux",
       "flux run -n 2 -o cpu-affinity=map:0;4 -o mpi=none numactl --localalloc ./a",
       {{0}, {4}},
       "local",
       {"-o mpi=none"}},
      {"lsf", "LSB_USER_BIND_CPU_LIST=0-3 bsub -q short -n 4 numactl -m 0 ./a", {{0, 1, 2, 3}}, "bind=0", {"-q short"}},
      {"jsrun",
       "printf '%s\\n' 'cpu_index_using: physical' 'launch_distribution: packed' 'overlapping_rs: warn' "
       "'rank: 0: { host: 1; cpu: {0-1} ; gpu: {0} }' > my.erf && jsrun --erf_input=my.erf -E A=1 numactl -m 1 ./a",
       {{0, 1}},
       "bind=1",
       {"launch_distribution: packed", "gpu:{0}", "-E A=1"}},
      {"blaunch",
       "blaunch -no-shell -z 'n1 n2' taskset -a -c 0-3 numactl -i all ./a",
       {{0, 1, 2, 3}},
       "interleave=0-1",
       {"-a", "-no-shell", "-z n1 n2"}},
      {"blaunch", "blaunch n1 taskset -c 4 ./a", {{4}}, "default", {"n1"}},
      {"pbsdsh", "pbsdsh -v -n 0 -- taskset -c 4,5 numactl -m 1 ./a", {{4, 5}}, "bind=1", {"-v", "-n 0"}},
      {"pbsdsh", "pbs_tmrsh n1 -l me taskset -c 4 ./a", {{4}}, "default", {"n1", "-l me"}},
      {"cpuset", "echo 0-3 > job/cpuset.cpus && echo 1 > job/cpuset.mems", {{0, 1, 2, 3}}, "bind=1", {}},
      {"cpuset",
       "echo 0-7:1/2 | sudo tee /sys/fs/cgroup/a/cpuset.cpus; echo 0-1 | sudo tee /sys/fs/cgroup/a/cpuset.mems",
       {{0, 2, 4, 6}},
       "default",
       {}},
      {"cpuset",
       "cgset -r cpuset.cpus=4-7 -r cpuset.mems=1 -r memory.max=1G job",
       {{4, 5, 6, 7}},
       "bind=1",
       {"-r memory.max=1G"}},
      {"cpuset",
       "docker run --rm --cpuset-cpus=0,4 --cpuset-mems 0 image",
       {{0, 4}},
       "bind=0",
       {"the image or container image", "--rm"}},
      {"cpuset",
       "docker run --cpuset-cpus=0-3 --privileged -it -v /a:/b --rm image ./solve 1",
       {{0, 1, 2, 3}},
       "default",
       {"the image or container image", "--privileged", "-i", "-t", "-v /a:/b", "--rm"}},
      {"cpuset", "systemd-run -p AllowedCPUs=0-3 -p AllowedMemoryNodes=0 ./a", {{0, 1, 2, 3}}, "bind=0", {}},
      {"hwloc", "hwloc-bind --strict --cpubind node:0 --membind node:1 ./a", {{0, 1, 2, 3}}, "bind=1", {}},
      {"hwloc", "hwloc-bind core:0 --membind node:1 -- ./a", {{0}}, "preferred=1", {}},
      {"hwloc", "hwloc-bind core:0 --membind all --mempolicy interleave -f -- ./a", {{0}}, "interleave=0-1", {"-f"}},
      {"hwloc", "hwloc-bind --membind core:4 --mempolicy firsttouch ./a", {{0, 1, 2, 3, 4, 5, 6, 7}}, "local", {}},
  };
  for (const auto& c : cases) {
    Parsed parsed;
    EXPECT_EQ(complaint([&] { parsed = parse(c.form, machine, c.text); }), "") << c.text;
    EXPECT_EQ(parsed.layout.parts, c.parts) << c.text;
    EXPECT_EQ(memory_text(parsed.memory), c.memory) << c.text;
    EXPECT_EQ(parsed.left_out, c.left_out) << c.text;
  }
}

TEST(PlacePastedLines, TheCommandAndThePagesGoAlong) {
  const Machine machine = two_by_four();
  const Parsed parsed =
      parse("numactl", machine, "GLIBC_TUNABLES=glibc.malloc.hugetlb=1 numactl -C 0 -m 1 ./solve -m 'a b'");
  EXPECT_EQ(parsed.command, "./solve -m 'a b'");
  EXPECT_EQ(parsed.memory.pages, "thp");
  for (const auto& [form, help] : forms()) {
    if (form == "parts") continue;
    const std::string text = line(emit(form, machine, {{{4}}}, {"preferred", {0}, {}, "2MiB"}), "./a.out");
    const Parsed again = parse(form, machine, text);
    EXPECT_EQ(memory_text(again.memory), "preferred=0") << text;
    EXPECT_EQ(again.memory.pages, "2MiB") << text;
    EXPECT_EQ(again.left_out, Words()) << text;
  }
}

TEST(PlacePastedLines, ThreadsThatDoNotFillThePlacesArePlacedOrRefused) {
  const Machine machine = two_by_four();
  const auto parts = [&](const std::string& text) { return parse("omp-places", machine, text).layout.parts; };
  EXPECT_EQ(parts("OMP_PLACES=cores OMP_PROC_BIND=close OMP_NUM_THREADS=3"), (Parts{{0}, {1}, {2}}));
  EXPECT_EQ(parts("OMP_PLACES=cores OMP_PROC_BIND=spread OMP_NUM_THREADS=4"), (Parts{{0}, {2}, {4}, {6}}));
  EXPECT_EQ(parts("OMP_PLACES=sockets OMP_PROC_BIND=close OMP_NUM_THREADS=4"),
            (Parts{{0, 1, 2, 3}, {0, 1, 2, 3}, {4, 5, 6, 7}, {4, 5, 6, 7}}));
  EXPECT_EQ(parts("OMP_PLACES=cores OMP_PROC_BIND=master OMP_NUM_THREADS=2"), (Parts{{0}, {0}}));
}

TEST(PlacePastedLines, ContradictionsAreRefusedAndNamed) {
  const Machine machine = threads_last();
  const struct {
    const char *form, *text, *part;
  } cases[] = {
      {"numactl", "-N 0 -C 1", "--physcpubind together with --cpunodebind"},
      {"numactl", "-m 0 -i all", "another memory policy"},
      {"numactl", "--hardware", "neither CPUs nor a memory policy"},
      {"numactl", "-N 2", "node 2 in '2'"},
      {"numactl", "-m netdev:eth0", "'netdev:eth0'"},
      {"numactl", "--nosuch=1 -N 0", "the option '--nosuch=1'; --all"},
      {"numactl", "-N", "without its value"},
      {"numactl", "--preferred=0-1", "several nodes"},
      {"taskset", "taskset -c 0 taskset -c 1 ./a", "a second binding"},
      {"mpich", "-bind-to user:0 numactl -C 1 ./a", "a second binding"},
      {"slurm", "srun --cpu-bind=map_cpu:0 --mem-bind=local numactl -m 1 ./a", "two memory policies"},
      {"slurm", "srun --cpu-bind=map_cpu:0 --mem-bind=map_mem:9 ./a", "'9'"},
      {"openmpi", "printf '%s\\n' 'rank 0=a slot=0' > rf && mpirun -np 1 --rankfile rf ./a",
       "rmaps_rank_file_physical"},
      {"openmpi", "mpirun --rankfile mine ./a", "no rank file"},
      {"omp-places", "OMP_PLACES=cores OMP_PROC_BIND=false", "binds no thread"},
      {"omp-places", "OMP_PLACES=threads OMP_PROC_BIND=spread OMP_NUM_THREADS=3", "distribute differently"},
      {"kmp", "KMP_AFFINITY=granularity=fine,proclist=[0]", "explicit"},
      {"kmp", "KMP_AFFINITY=proclist=[0],explicit", "no granularity"},
      {"likwid", "-c 0 -i -m", "two memory policies"},
      {"cpuset", "echo 0 > cpuset.cpus && echo 2 > cpuset.mems", "nodes with memory: 0-1"},
      {"hwloc", "--cpubind core:0 --membind node:0 --mempolicy nexttouch", "'nexttouch'"},
  };
  for (const auto& c : cases) {
    const std::string error = complaint([&] { parse(c.form, machine, c.text); });
    EXPECT_NE(error.find(c.part), std::string::npos) << c.text << ": " << error;
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(PlacePastedLines, NumbersWithGapsStayThoseOfTheOperatingSystem) {
  const Machine machine = machine_of("numa:2(indexes=0,8) core:2 pu:1(indexes=0,1,88,89)");
  const Parsed parsed = parse("numactl", machine, "-N 8 -m 0,8");
  EXPECT_EQ(parsed.layout.parts, (Parts{{88, 89}}));
  EXPECT_EQ(memory_text(parsed.memory), "bind=0,8");
  const Form cpuset = emit("cpuset", machine, {{{0, 88}}}, {});
  EXPECT_EQ(cpuset.files[0].second, "0,88\n");
  EXPECT_EQ(cpuset.files[1].second, "0,8\n");
  EXPECT_EQ(parse("numactl", machine, "-C +2-3 -m +1").layout.parts, (Parts{{88, 89}}));
}

}  // namespace
