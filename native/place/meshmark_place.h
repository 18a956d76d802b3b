#ifndef MESHMARK_PLACE_H
#define MESHMARK_PLACE_H
/**
 * Where a program's own pages are, and how it moves them: libmeshmark-place.so.
 *
 *   #include <meshmark_place.h>
 *   mm_next_touch(field, n * sizeof *field);  // the threads now change: each page follows who touches it first
 *
 * C, from any language; link with -lmeshmark-place. Linux with NUMA; on one node everything is where it is already.
 * Functions return -1 and set errno where they fail.
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
 * It takes the access to the pages away (mprotect) and gives it back in a handler of SIGSEGV, after moving them; one
 * touch moves a page, or 2 MiB where the kernel made huge pages. A handler that was there before gets every fault that
 * is not ours; one that is installed later must pass ours on, or call this again. After Goglin and Furmento, "Enabling
 * High-Performance Memory Migration for Multithreaded Applications on Linux" (MTAAP 2009).
 *
 * Until it is touched, marked memory must not be given to the kernel (read(2) into it: EFAULT), unmapped or protected
 * by others; a debugger stops at each touch. Never mark a stack in use.
 *
 * errno: EINVAL: no whole page, or the caller's stack; ENOMEM: not mapped (nothing is marked then), or no room for more
 * than 1024 separate ranges; EACCES: a page without access.
 */
MM_API int mm_next_touch(void* addr, size_t bytes);

struct mm_next_touch_counts {
  unsigned long touched; /**< pages (or runs of 2 MiB) whose mark was used up */
  unsigned long moved;   /**< pages of 4 KiB that went to another node */
  unsigned long kept;    /**< pages of 4 KiB that could not: node full, shared with another process, in use by a device */
  unsigned long lost;    /**< marks taken off because the kernel allows no more mappings (vm.max_map_count) */
};
/** Since the program began. */
MM_API void mm_next_touch_count(struct mm_next_touch_counts* counts);

/**
 * Moves the pages that touch [addr, addr + bytes) to a node, now. Returns how many pages of 4 KiB are not there
 * afterwards; those never touched do not count. errno: EINVAL, EACCES (node outside the cpuset), ENODEV (no such node).
 */
MM_API long mm_migrate(void* addr, size_t bytes, int node);

/** The node of the page at addr. errno: ENOENT: never touched, or marked and untouched since; EFAULT: not mapped. */
MM_API int mm_where(const void* addr);

#ifdef __cplusplus
}
#endif
#endif
