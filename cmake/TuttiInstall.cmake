# The files of `cmake --install`: the library, the tool, the plugins (tutti_add_plugin() installs each), the SDK's
# headers and static kernels, and the CMake package that find_package(Tutti) finds.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Tutti)

set_target_properties(tutti_sdk PROPERTIES EXPORT_NAME sdk)
set_target_properties(tutti_host_kernels PROPERTIES EXPORT_NAME host_kernels)
target_include_directories(tutti PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/core/include>
                                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(tutti PUBLIC cxx_std_20)
target_compile_features(tutti_sdk INTERFACE cxx_std_20)

install(TARGETS tutti tutti_sdk tutti_host_kernels EXPORT TuttiTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(tutti_tool PROPERTIES EXPORT_NAME tool) # tests of plugins run Tutti::tool
install(TARGETS tutti_tool EXPORT TuttiTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY configs/topologies configs/hardware DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti)
install(FILES configs/default.yaml DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/configs)
install(DIRECTORY configs/examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti/configs)
# A complete project of each kind of plugins; each builds alone, by find_package(Tutti).
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DATADIR}/tutti PATTERN examples/CMakeLists.txt EXCLUDE)
install(DIRECTORY core/include/tutti DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
# All that is installed, without tests and benchmarks.
get_property(plugins GLOBAL PROPERTY TUTTI_INSTALLED_PLUGINS)
add_custom_target(plugins DEPENDS ${plugins})
add_custom_target(product DEPENDS tutti tutti_host_kernels tutti_tool tutti_nccl_net plugins)
if(TARGET tutti_nccl)
  add_dependencies(product tutti_nccl)
endif()
install(EXPORT TuttiTargets NAMESPACE Tutti:: DESTINATION ${package_dir})
install(FILES cmake/TuttiPlugin.cmake cmake/TuttiCudaKernels.cmake cmake/CheckPlugin.cmake cmake/note.c.in
  cmake/plugin.map
  DESTINATION ${package_dir})

configure_package_config_file(cmake/TuttiConfig.cmake.in ${PROJECT_BINARY_DIR}/TuttiConfig.cmake
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a new minor version may change the API. The plugin ABI has its own number, which the loader checks.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/TuttiConfig.cmake ${PROJECT_BINARY_DIR}/TuttiConfigVersion.cmake
  DESTINATION ${package_dir})
