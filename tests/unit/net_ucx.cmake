# The network ucx, where UCX was found.
if(UCX_FOUND)
  # Not for ThreadSanitizer, which does not see how UCX, not compiled with it, synchronises.
  tutti_test(net_ucx_test SOURCES net_ucx_test.cpp LIBRARIES PkgConfig::UCX TIMEOUT 120)
  add_dependencies(net_ucx_test tutti-net-ucx)
  set_property(TEST net_ucx_test APPEND PROPERTY ENVIRONMENT
    LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/ucx_leaks.txt:print_suppressions=0)
  target_include_directories(net_ucx_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
  target_link_libraries(net_ucx_test PRIVATE OpenSSL::Crypto)
else()
  add_test(NAME net_ucx_test COMMAND ${CMAKE_COMMAND} -E echo "skipped: UCX (libucx-dev) was not found")
  set_tests_properties(net_ucx_test PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
  tutti_time_limit(30 net_ucx_test)
endif()
