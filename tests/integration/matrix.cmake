# Every collective, type, operator, size, rank count, algorithm, protocol and transport against each other.
# Under ctest: a set of cases in which every pair of values occurs. By hand: matrix_test --full.
add_executable(matrix_test
  ${CMAKE_CURRENT_LIST_DIR}/matrix/main.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/cases.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/gpu.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/runner.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/scenarios.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/team.cpp)
target_link_libraries(matrix_test PRIVATE tutti_check tutti_core_static tutti_options CLI11::CLI11)
target_include_directories(matrix_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
tutti_precompile(matrix_test <CLI/CLI.hpp>)
tutti_compile_fast(matrix_test)
set_target_properties(matrix_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)

add_test(NAME matrix COMMAND matrix_test --seed 1)
tutti_time_limit(200 matrix)
add_test(NAME matrix_small COMMAND matrix_test --seed 1 --ranks 3 --max-count 4097)
set_tests_properties(matrix PROPERTIES LABELS program)
set_tests_properties(matrix_small PROPERTIES LABELS "program;concurrent"
  ENVIRONMENT "TUTTI_CHECK_PLUGINS=true;TUTTI_CHECK_DATA=true")
tutti_time_limit(100 matrix_small)
# Between hosts, with TLS: every collective, at sizes of one record and of many.
add_test(NAME matrix_tls COMMAND matrix_test --seed 1 --ranks 4 --max-count 70000 --filter "2 hosts")
set_tests_properties(matrix_tls PROPERTIES LABELS program ENVIRONMENT "TUTTI_SETTINGS_NET_SOCKET_TLS=on")
tutti_time_limit(100 matrix_tls)
add_test(NAME matrix_gpus COMMAND matrix_test --seed 1 --gpus --ranks 1,2,4 --max-count 70000)
set_tests_properties(matrix_gpus PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
if(TUTTI_WITH_CUDA)
  add_dependencies(extra_tests matrix_test)
  tutti_use_cuda_headers(matrix_test ${CMAKE_CURRENT_LIST_DIR}/matrix/gpu.cpp)
  target_link_libraries(matrix_test PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
endif()
