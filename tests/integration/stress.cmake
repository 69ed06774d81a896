# Thousands of large calls, checked on the GPU.
if(TUTTI_WITH_CUDA)
  set(here ${CMAKE_CURRENT_LIST_DIR})
  add_executable(gpu_stress_test ${here}/stress/main.cpp ${here}/stress/words.cu ${here}/matrix/gpu.cpp
    ${here}/matrix/team.cpp)
  target_link_libraries(gpu_stress_test PRIVATE tutti_core_static tutti_options CLI11::CLI11 CUDA::cudart_static)
  target_compile_definitions(gpu_stress_test PRIVATE TUTTI_HAS_CUDA)
  target_include_directories(gpu_stress_test PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/core/include)
  set_target_properties(gpu_stress_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_dependencies(extra_tests gpu_stress_test)
  foreach(protocol ll ll128 simple)
    add_test(NAME gpu_stress_${protocol} COMMAND gpu_stress_test --set protocol=${protocol})
    set_tests_properties(gpu_stress_${protocol} PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
  endforeach()
  add_test(NAME gpu_stress_registered COMMAND gpu_stress_test --set protocol=simple --register)
  set_tests_properties(gpu_stress_registered PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
  # Blocks so large that they go as messages.
  add_test(NAME gpu_stress_messages COMMAND gpu_stress_test --set protocol=simple --set algorithm=direct/shifted
           --collectives all_gather,all_to_all --bytes 48M --calls 300)
  set_tests_properties(gpu_stress_messages PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
endif()
