tutti_test(reduce_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/reduce_test.cpp ${CMAKE_CURRENT_LIST_DIR}/reduce_reference.cpp
           LIBRARIES tutti_host_kernels TIMEOUT 300)

# A function that the linker may merge across instruction sets would crash a CPU without the larger one.
if(NOT TUTTI_SANITIZE)
  add_test(NAME reduce_symbols
           COMMAND sh -c "! '${CMAKE_NM}' -C '$<TARGET_FILE:tutti_host_kernels>' | grep -E ' [WwVvu] '")
endif()
