# reduce_bench: the host reduction kernels against memcpy (Google Benchmark).
find_package(benchmark QUIET)
tutti_record("${benchmark_FOUND}" "Google Benchmark (reduce_bench)")
if(benchmark_FOUND)
  add_executable(reduce_bench ${CMAKE_CURRENT_LIST_DIR}/reduce_bench.cpp)
  target_link_libraries(reduce_bench PRIVATE tutti_host_kernels tutti_options benchmark::benchmark)
endif()
