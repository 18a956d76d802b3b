#pragma once

namespace mm::survey {

/// Answers `meshmark-probe survey`; argv[0] is the verb. Returns the exit status.
int run(int argc, char** argv);

}  // namespace mm::survey
