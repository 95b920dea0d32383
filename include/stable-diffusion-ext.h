/*
 * Additions of this library to stable-diffusion.h. A client that must also run on other implementations of that
 * interface looks these functions up at run time.
 *
 * Generated from src/capi/ext.rs; change the Rust source, not this file.
 */

#ifndef STABLE_DIFFUSION_EXT_H
#define STABLE_DIFFUSION_EXT_H

#include "stable-diffusion.h"

/**
 * Revision of the structs and functions of stable-diffusion.h that this library is made to. It is the number at the
 * end of the library's soname and grows when a struct or signature changes.
 */
#define SD_EXT_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * SD_EXT_ABI_VERSION of the library that is loaded; compare it with the header's.
 */
SD_API int sd_ext_abi_version(void);

/**
 * Why the last call of this thread failed; "" when it succeeded. Never NULL.
 *
 * Functions that cannot fail (names, inits, frees, callbacks, sd_cancel_generation) leave it as it is. The text is
 * valid until this thread's next call.
 */
SD_API
const char *sd_ext_last_error(void);

/**
 * Describes model files without reading their weights: a JSON text in UTF-8, or NULL when a file cannot be read.
 *
 * files says for each path what it holds, its bytes by type, and the field that takes it; family, variant,
 * parts, missing and memory (bytes) are about the model that all of them make up, family being null where they
 * make up none. fields maps fields to paths. Release the text with sd_ext_free_text.
 *
 * Pointers:
 * paths is NULL or points to count strings, each NULL or NUL-terminated.
 */
SD_API
char *sd_ext_inspect_model(const char *const *paths,
                           size_t count);

/**
 * Releases a text that this library returned; NULL is allowed.
 *
 * Pointers:
 * text is NULL or was returned by sd_ext_inspect_model and not released yet.
 */
SD_API void sd_ext_free_text(char *text);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* STABLE_DIFFUSION_EXT_H */
