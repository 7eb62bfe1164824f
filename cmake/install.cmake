# Installed: library, headers, CMake package, pkg-config file. The tool installs itself and its man page.
include(CMakePackageConfigHelpers)

install(TARGETS bstk EXPORT bstkTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/bstk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/bstk/version.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/bstk)

set(BSTK_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/bstk)
install(EXPORT bstkTargets NAMESPACE bstk:: DESTINATION ${BSTK_CMAKE_DIR})
configure_package_config_file(cmake/bstkConfig.cmake.in ${PROJECT_BINARY_DIR}/bstkConfig.cmake
  INSTALL_DESTINATION ${BSTK_CMAKE_DIR})
# Before 1.0 a minor version may change the API.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/bstkConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/bstkConfig.cmake ${PROJECT_BINARY_DIR}/bstkConfigVersion.cmake
  DESTINATION ${BSTK_CMAKE_DIR})

file(RELATIVE_PATH BSTK_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/bstk.pc.in ${PROJECT_BINARY_DIR}/bstk.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/bstk.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The Python wheel: the one file that ctypes loads, beside the package.
if(BSTK_WHEEL)
  install(FILES $<TARGET_FILE:bstk> DESTINATION . RENAME libbstk.so COMPONENT wheel)
endif()
