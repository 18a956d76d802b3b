#pragma once
/// The counts of what one unit of a load kernel does, and their names, units and meanings in output.

namespace mm::workloads {

/// Exact counts of one unit, summed over all threads; `kCountColumns` states the meaning of each count.
struct Counts {
  double flops = 0;
  double int_ops = 0;
  double load_bytes = 0;
  double store_bytes = 0;
  double line_read_bytes = 0;
  double line_write_bytes = 0;  ///< written back eventually
  double io_read_bytes = 0;
  double io_write_bytes = 0;
  double system_calls = 0;
};

/// A member of `Counts`, with its name in conditions of records, program files and `meshmark-load describe`.
struct CountColumn {
  const char *name, *unit, *meaning;
  double Counts::* value;
};

inline constexpr CountColumn kCountColumns[] = {
    {"flops", "flop", "operations on reals: + - * / sqrt min max, comparisons and function calls, one each",
     &Counts::flops},
    {"int_ops", "op", "operations on integer data; not indices, addresses or loop counters", &Counts::int_ops},
    {"load_bytes", "B", "operands loaded, by the source text", &Counts::load_bytes},
    {"store_bytes", "B", "operands stored, by the source text", &Counts::store_bytes},
    {"line_read_bytes", "B", "lines of 64 B touched, except those written past the caches", &Counts::line_read_bytes},
    {"line_write_bytes", "B", "lines of 64 B written", &Counts::line_write_bytes},
    {"io_read_bytes", "B", "read from files", &Counts::io_read_bytes},
    {"io_write_bytes", "B", "written to files", &Counts::io_write_bytes},
    {"system_calls", "1", "system calls", &Counts::system_calls},
};

}  // namespace mm::workloads
