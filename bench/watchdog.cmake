# watchdog_bench: the cost of the watchdog over a network's entries (Google Benchmark).
if(benchmark_FOUND)
  add_executable(watchdog_bench EXCLUDE_FROM_ALL ${CMAKE_CURRENT_LIST_DIR}/watchdog_bench.cpp)
  target_link_libraries(watchdog_bench PRIVATE tutti_core_static tutti_options benchmark::benchmark)
endif()
