# gpu_limits: the highest bandwidth between two GPUs, without a protocol.
if(TUTTI_WITH_CUDA)
  add_executable(gpu_limits ${CMAKE_CURRENT_LIST_DIR}/gpu_limits.cu)
  target_include_directories(gpu_limits PRIVATE ${PROJECT_SOURCE_DIR}/core/include)
  target_compile_options(gpu_limits PRIVATE -Xcompiler=-Wall,-Wextra,-Werror -Werror=all-warnings)
  set_target_properties(gpu_limits PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endif()
