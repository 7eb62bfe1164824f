/* bstk.h: all of the library. C11; also C++17. */
#ifndef BSTK_BSTK_H
#define BSTK_BSTK_H

#include <bstk/attention.h>
#include <bstk/context.h>
#include <bstk/convert.h>
#include <bstk/layout.h>
#include <bstk/matmul.h>
#include <bstk/norm.h>
#include <bstk/plan.h>
#include <bstk/softmax.h>
#include <bstk/status.h>
#include <bstk/tensor.h>
#include <bstk/version.h>

#endif
