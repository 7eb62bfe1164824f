/* export.h: visibility and attributes of the public functions. */
#ifndef BSTK_EXPORT_H
#define BSTK_EXPORT_H

/* The library is built with hidden visibility; only what carries BSTK_API is exported. */
#if defined(__GNUC__)
#define BSTK_API __attribute__((visibility("default")))
#else
#define BSTK_API
#endif

/* A status that nobody looks at is a bug in the caller: the compiler says so. */
#if defined(__cplusplus) && __cplusplus >= 201703L
#define BSTK_NODISCARD [[nodiscard]]
#elif defined(__GNUC__)
#define BSTK_NODISCARD __attribute__((warn_unused_result))
#else
#define BSTK_NODISCARD
#endif

#ifdef __cplusplus
#define BSTK_BEGIN_DECLS extern "C" {
#define BSTK_END_DECLS   }
#else
#define BSTK_BEGIN_DECLS
#define BSTK_END_DECLS
#endif

#endif
