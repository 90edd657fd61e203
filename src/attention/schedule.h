// How the work of a call is cut into tasks: by shape and lengths alone, so that the number of threads changes no result. Sequences are
// numbered once a call, empty ones left out (a batch of documents has capacity for many more than there are), and a task finds its own by
// bisection.
#pragma once
#include <algorithm>

#include "attention/problem.h"

namespace flashgpt::attention {

constexpr Index ceil_div(Index a, Index b) { return (a + b - 1) / b; }
constexpr Index round_up(Index a, Index b) { return ceil_div(a, b) * b; }

// Tasks of all sequences in order: those of entry e are [first_task[e], first_task[e + 1]). Lives in scratch: table_bytes(batch).
struct TaskTable {
  Index entries = 0;
  Index* first_task = nullptr;       // [entries + 1]
  std::int32_t* sequence = nullptr;  // [entries]: index in the batch

  Index tasks() const { return first_task[entries]; }
  // The entry of a task.
  Index find(Index task) const { return std::upper_bound(first_task, first_task + entries + 1, task) - first_task - 1; }
};

constexpr std::size_t table_bytes(Index batch) {
  return static_cast<std::size_t>(round_up((batch + 1) * static_cast<Index>(sizeof(Index) + sizeof(std::int32_t)), 64));
}

// tasks_of(sequence): how many tasks it makes.
template <class Count> TaskTable make_table(const Problem& p, void* memory, Count&& tasks_of) {
  TaskTable t;
  t.first_task = static_cast<Index*>(memory);
  t.sequence = reinterpret_cast<std::int32_t*>(t.first_task + p.batch + 1);
  t.first_task[0] = 0;
  for (Index b = 0; b < p.batch; ++b) {
    const Index n = tasks_of(p.sequence(b));
    if (n == 0) continue;
    t.sequence[t.entries] = static_cast<std::int32_t>(b);
    t.first_task[t.entries + 1] = t.first_task[t.entries] + n;
    ++t.entries;
  }
  return t;
}

// The backward cuts the keys of a sequence into splits when there are few heads, so that all threads have work; each split then has a
// partial dQ of its own in scratch. Enough tasks for this many threads, no split shorter than kLeastSplit keys, and at most kMostSplits,
// so that scratch stays linear in the length.
inline constexpr Index kEnoughTasks = 16;
inline constexpr Index kLeastSplit = 512;
inline constexpr Index kMostSplits = 16;

// keys: of the sequence; all_keys: of the call. The most that any sequence can get follows from keys = max_k.
constexpr Index key_splits(Index keys, Index all_keys, Index kv_heads) {
  if (keys <= 0) return 1;
  const Index wanted = ceil_div(kEnoughTasks * keys, kv_heads * std::max(keys, all_keys));
  return std::clamp<Index>(wanted, 1, std::clamp<Index>(keys / kLeastSplit, 1, kMostSplits));
}

// The forward does so where the rows of queries make few tasks. kSplitRows: rows of a task, for this purpose whatever the instruction set.
inline constexpr Index kSplitRows = 256;
inline Index query_splits(const Problem& p, Index keys) {
  const Index tasks = p.varlen ? ceil_div(p.total_q * p.group, kSplitRows) : p.batch * ceil_div(p.max_q * p.group, kSplitRows);
  const Index wanted = ceil_div(kEnoughTasks, std::max<Index>(1, tasks * p.kv_heads));
  return std::clamp<Index>(wanted, 1, std::clamp<Index>(keys / kLeastSplit, 1, kMostSplits));
}

}  // namespace flashgpt::attention
