#pragma once
/// What one unit of a load kernel does, and the names, units and meanings under which programs publish it.

namespace mm::workloads {

/// Exact counts of one unit, summed over all threads; `kCountColumns` states what each one is.
struct Counts {
  double flops = 0;
  double int_ops = 0;
  double load_bytes = 0;
  double store_bytes = 0;
  double line_read_bytes = 0;
  double line_write_bytes = 0;  ///< these lines are written back some day
  double io_read_bytes = 0;
  double io_write_bytes = 0;
  double system_calls = 0;
};

/// A member of `Counts`, as conditions of records, files of programs and `meshmark-load describe` name it.
struct CountColumn {
  const char *name, *unit, *meaning;
  double Counts::* value;
};

inline constexpr CountColumn kCountColumns[] = {
    {"flops", "flop", "operations on reals: + - * / sqrt min max, comparisons and calls of functions, one each",
     &Counts::flops},
    {"int_ops", "op", "operations on integers that are data; not indices, addresses or loop counts", &Counts::int_ops},
    {"load_bytes", "B", "operands as the source text loads them", &Counts::load_bytes},
    {"store_bytes", "B", "operands as the source text stores them", &Counts::store_bytes},
    {"line_read_bytes", "B", "lines of 64 B touched, except those written past the caches", &Counts::line_read_bytes},
    {"line_write_bytes", "B", "lines of 64 B written", &Counts::line_write_bytes},
    {"io_read_bytes", "B", "read from files", &Counts::io_read_bytes},
    {"io_write_bytes", "B", "written to files", &Counts::io_write_bytes},
    {"system_calls", "1", "system calls", &Counts::system_calls},
};

}  // namespace mm::workloads
