# For users of an installed library: find_package(tilewise) and pkg-config.

include(CMakePackageConfigHelpers)

install(TARGETS tilewise EXPORT tilewise-targets)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Nothing has to be found before the target can be used, so its file is the whole configuration.
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tilewise)
install(EXPORT tilewise-targets FILE tilewise-config.cmake NAMESPACE tilewise:: DESTINATION ${package_folder})

write_basic_package_version_file(tilewise-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tilewise-config-version.cmake DESTINATION ${package_folder})

# What a static library leaves to its user's linker: OpenMP (see src), and the C++ compiler's libraries, for
# linkers that are run by a C compiler.
set(private_libraries ${openmp_link_flags})
foreach(name IN LISTS CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
  if(name MATCHES "^(stdc\\+\\+|c\\+\\+|c\\+\\+abi|m)$")
    list(APPEND private_libraries -l${name})
  endif()
endforeach()
list(REMOVE_DUPLICATES private_libraries)
list(JOIN private_libraries " " private_libraries)

# In a static library they are not only for `pkg-config --static`.
if(BUILD_SHARED_LIBS)
  set(libraries "-L\${libdir} -ltilewise")
else()
  set(libraries "-L\${libdir} -ltilewise ${private_libraries}")
  set(private_libraries "")
endif()

# Paths relative to the file, so that an installation can be moved.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pkg_config_prefix ${CMAKE_INSTALL_PREFIX})
  set(pkg_config_libdir ${CMAKE_INSTALL_LIBDIR})
else()
  file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  string(REGEX REPLACE "/$" "" to_prefix ${to_prefix})
  set(pkg_config_prefix "\${pcfiledir}/${to_prefix}")
  set(pkg_config_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
if(IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pkg_config_includedir ${CMAKE_INSTALL_INCLUDEDIR})
else()
  set(pkg_config_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
configure_file(cmake/tilewise.pc.in tilewise.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/tilewise.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
