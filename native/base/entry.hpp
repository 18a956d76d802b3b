#pragma once
/// How a program begins and ends, whatever it does.
#include <exception>
#include <functional>
#include <string>

namespace mm {

/// Does `work` and returns its exit status, in an ordinary world: descriptors 0 to 2 are open (else a file of data
/// would become one of them, and talk would go there), what was printed has arrived (else 1 and one line on standard
/// error), and no exception leaves, on whatever thread (1 and one line). `name` begins those lines: "meshmark-probe".
/// A closed standard output is an error before anything is done.
int enter(const std::string& name, const std::function<int()>& work);

/// An exception in words, for people. Where memory or a thread could not be had it names the limit that is set.
std::string in_words(const std::exception& wrong);

/// "" or "; the address space is limited to 200000 KiB (ulimit -v)": the reason for most of what cannot be had then.
std::string address_limit();

}  // namespace mm
