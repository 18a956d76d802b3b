#ifndef MESHMARK_PLACE_H
#define MESHMARK_PLACE_H
/**
 * Shows where the pages of the calling program are, and moves them: libmeshmark-place.so.
 *
 *   #include <meshmark_place.h>
 *   mm_next_touch(field, n * sizeof *field);  // from now on, each page moves to the thread that touches it first
 *
 * The functions can be called from any language that can call C; link with -lmeshmark-place. They require Linux with
 * NUMA; on a machine with one node, they move nothing. A function that fails returns -1 and sets errno.
 */
#include <stddef.h>

#if defined(__GNUC__)
#define MM_API __attribute__((visibility("default")))
#else
#define MM_API
#endif
#ifdef __cplusplus
extern "C" {
#endif

/**
 * Marks the whole pages in [addr, addr + bytes): each moves to the node of the thread that touches it next, once.
 *
 * The function removes access to the pages (mprotect); a SIGSEGV handler moves them and restores access. One
 * touch moves a page, or 2 MiB where the kernel created huge pages. A handler that was installed before receives every
 * fault that this library did not cause. A program that installs a handler later must forward the faults of this
 * library, or call this function again. Source: Goglin and Furmento, "Enabling High-Performance Memory Migration for
 * Multithreaded Applications on Linux" (MTAAP 2009).
 *
 * Until marked memory is touched, do not pass it to the kernel (read(2) into it fails with EFAULT), unmap it or change
 * its protection. A debugger stops at each touch. Never mark a stack in use.
 *
 * errno: EINVAL: no whole page, or the caller's stack; ENOMEM: not mapped (nothing is marked then), or more than 1024
 * separate ranges; EACCES: a page without access.
 */
MM_API int mm_next_touch(void* addr, size_t bytes);

struct mm_next_touch_counts {
  unsigned long touched; /**< pages (or runs of 2 MiB) that were touched while marked */
  unsigned long moved;   /**< pages of 4 KiB that moved to another node */
  unsigned long kept; /**< pages of 4 KiB that could not: node full, shared with another process, in use by a device */
  unsigned long lost; /**< marks removed because the kernel allows no more mappings (vm.max_map_count) */
};
/** Counts since the start of the program. */
MM_API void mm_next_touch_count(struct mm_next_touch_counts* counts);

/**
 * Moves the pages that overlap [addr, addr + bytes) to a node immediately. Returns the number of pages of 4 KiB that
 * are not there afterwards; pages that were never touched do not count. errno: EINVAL, EACCES (node outside the
 * cpuset), ENODEV (no such node).
 */
MM_API long mm_migrate(void* addr, size_t bytes, int node);

/** Returns the node of the page at addr. errno: ENOENT: never touched, or marked and not touched since; EFAULT: not
 * mapped. */
MM_API int mm_where(const void* addr);

#ifdef __cplusplus
}
#endif
#endif
