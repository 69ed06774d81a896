# The network ucx, where UCX was found.
if(UCX_FOUND)
  # Not for ThreadSanitizer, which does not see how UCX, not compiled with it, synchronises.
  foreach(test net_ucx_test net_ucx_strangers_test)
    tutti_test(${test} SOURCES ${test}.cpp LIBRARIES ${CMAKE_DL_LIBS} LABELS ucx TIMEOUT 120)
    add_dependencies(${test} tutti-net-ucx)
    set_property(TEST ${test} APPEND PROPERTY ENVIRONMENT
      LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_LIST_DIR}/ucx_leaks.txt:print_suppressions=0)
    target_include_directories(${test} PRIVATE ${PROJECT_SOURCE_DIR}/plugins ${UCX_INCLUDE_DIRS})
    target_link_libraries(${test} PRIVATE OpenSSL::Crypto)
  endforeach()
else()
  foreach(test net_ucx_test net_ucx_strangers_test)
    add_test(NAME ${test} COMMAND ${CMAKE_COMMAND} -E echo "skipped: UCX (libucx-dev) was not found")
    set_tests_properties(${test} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped")
    tutti_time_limit(30 ${test})
  endforeach()
endif()
