# Random calls over two communicators, in groups, on streams, in graphs. Ranks are threads.
add_executable(random_calls_test
  ${CMAKE_CURRENT_LIST_DIR}/random/main.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random/play_device.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random/player.cpp
  ${CMAKE_CURRENT_LIST_DIR}/random/sequence.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/gpu.cpp
  ${CMAKE_CURRENT_LIST_DIR}/matrix/team.cpp)
target_link_libraries(random_calls_test PRIVATE tutti_check tutti_core_static tutti_options CLI11::CLI11)
target_include_directories(random_calls_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
tutti_precompile(random_calls_test <CLI/CLI.hpp>)
tutti_compile_fast(random_calls_test)
set_target_properties(random_calls_test PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
if(TUTTI_WITH_CUDA)
  add_dependencies(extra_tests random_calls_test)
  tutti_use_cuda_headers(random_calls_test
    ${CMAKE_CURRENT_LIST_DIR}/matrix/gpu.cpp ${CMAKE_CURRENT_LIST_DIR}/random/play_device.cpp)
  target_link_libraries(random_calls_test PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
endif()

add_test(NAME random_calls COMMAND random_calls_test)
tutti_time_limit(100 random_calls)
add_test(NAME random_calls_small COMMAND random_calls_test --calls 300 --ranks 3 --max-bytes 65536)
set_tests_properties(random_calls PROPERTIES LABELS program)
set_tests_properties(random_calls_small PROPERTIES LABELS "program;concurrent" ENVIRONMENT TUTTI_CHECK_PLUGINS=true)
tutti_time_limit(30 random_calls_small)
add_test(NAME random_calls_gpus COMMAND random_calls_test --gpus)
set_tests_properties(random_calls_gpus PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
# The tuner's choice for a size hides the behaviour of the other protocols.
foreach(protocol simple ll ll128)
  add_test(NAME random_calls_gpus_${protocol} COMMAND random_calls_test --gpus --calls 2000)
  set_tests_properties(random_calls_gpus_${protocol} PROPERTIES
    LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77 ENVIRONMENT TUTTI_PROTOCOL=${protocol})
endforeach()
add_test(NAME random_replays_gpus
  COMMAND random_calls_test --gpus --graphs-only --replays 1000 --calls 20000 --max-bytes 65536)
set_tests_properties(random_replays_gpus PROPERTIES LABELS cuda TIMEOUT 600 SKIP_RETURN_CODE 77)
