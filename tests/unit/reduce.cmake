tutti_test(reduce_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/reduce_test.cpp ${CMAKE_CURRENT_LIST_DIR}/reduce_reference.cpp
           LIBRARIES tutti_host_kernels TIMEOUT 60)

# A function that the linker may merge across instruction sets would crash a CPU without the larger set.
if(NOT TUTTI_SANITIZE)
  add_test(NAME reduce_symbols COMMAND_EXPAND_LISTS
           COMMAND sh -c "! '${CMAKE_NM}' -C \"$@\" | grep -E ' [WwVvu] '" sh
                   $<FILTER:$<TARGET_OBJECTS:tutti_host_kernels>,INCLUDE,reduce_avx>)
  tutti_time_limit(30 reduce_symbols)
endif()
