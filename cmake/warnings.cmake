# One set of warnings for every target; errors in CI (BSTK_WERROR).
option(BSTK_WERROR "Treat warnings as errors" OFF)

function(bstk_warnings target)
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wvla -Wstrict-prototypes -Wmissing-prototypes -Wundef
    $<$<BOOL:${BSTK_WERROR}>:-Werror>)
endfunction()
