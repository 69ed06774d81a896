# gpu_limits: the highest bandwidth between two GPUs, without a protocol.
# gpu_launches: the time of an empty kernel in a graph.
if(TUTTI_WITH_CUDA)
  foreach(program gpu_limits gpu_launches)
    add_executable(${program} ${CMAKE_CURRENT_LIST_DIR}/${program}.cu)
    target_include_directories(${program} PRIVATE ${PROJECT_SOURCE_DIR}/core/include)
    target_compile_options(${program} PRIVATE -Xcompiler=-Wall,-Wextra,-Werror -Werror=all-warnings)
    if(TUTTI_TESTS)
      add_dependencies(extra_tests ${program})
    endif()
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  endforeach()
endif()
