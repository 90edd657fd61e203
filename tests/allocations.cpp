// Every replaceable form of operator new, counted. All of them: the address sanitizer keeps its own for the forms a program leaves
// out, and reports what one allocates and the other frees.
#include "allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> count{0};

void* allocate(std::size_t size, std::align_val_t align = std::align_val_t{16}) noexcept {
  ++count;
  const auto a = static_cast<std::size_t>(align);
  return std::aligned_alloc(a, (size + a) / a * a);  // a multiple of the alignment, never 0
}

void* allocate_or_throw(std::size_t size, std::align_val_t align = std::align_val_t{16}) {
  if (void* p = allocate(size, align)) return p;
  throw std::bad_alloc();
}

}  // namespace

std::int64_t flashgpt::testing::allocations() { return count; }

using std::align_val_t, std::nothrow_t, std::size_t;

void* operator new(size_t n) { return allocate_or_throw(n); }
void* operator new[](size_t n) { return allocate_or_throw(n); }
void* operator new(size_t n, align_val_t a) { return allocate_or_throw(n, a); }
void* operator new[](size_t n, align_val_t a) { return allocate_or_throw(n, a); }
void* operator new(size_t n, const nothrow_t&) noexcept { return allocate(n); }
void* operator new[](size_t n, const nothrow_t&) noexcept { return allocate(n); }
void* operator new(size_t n, align_val_t a, const nothrow_t&) noexcept { return allocate(n, a); }
void* operator new[](size_t n, align_val_t a, const nothrow_t&) noexcept { return allocate(n, a); }

void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t) noexcept { std::free(p); }
void operator delete(void* p, align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, align_val_t) noexcept { std::free(p); }
void operator delete(void* p, size_t, align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, size_t, align_val_t) noexcept { std::free(p); }
void operator delete(void* p, const nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, const nothrow_t&) noexcept { std::free(p); }
void operator delete(void* p, align_val_t, const nothrow_t&) noexcept { std::free(p); }
void operator delete[](void* p, align_val_t, const nothrow_t&) noexcept { std::free(p); }
