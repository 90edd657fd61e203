// How often this test program has allocated with operator new since it started: a step of training must not.
#pragma once

#include <cstdint>

namespace flashgpt::testing {

std::int64_t allocations();

}  // namespace flashgpt::testing
