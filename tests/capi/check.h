/* A check that says where it failed and counts. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            failures++; \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
        } \
    } while (0)

/* Whether text contains part. */
static inline int has(const char* text, const char* part) {
    return text != NULL && strstr(text, part) != NULL;
}

#endif
