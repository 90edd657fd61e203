#include "core/context.h"

namespace flashgpt {

TraceEntry& Trace::of(const char* op) {
  for (TraceEntry& e : entries)
    if (e.op == op) return e;
  entries.push_back({.op = op});
  return entries.back();
}

}  // namespace flashgpt
