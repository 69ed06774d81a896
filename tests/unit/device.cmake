tutti_test(device_test SOURCES device_test.cpp LIBRARIES tutti_host_kernels tutti_check LABELS concurrent TIMEOUT 200)
if(TUTTI_WITH_CUDA)
  tutti_test(lent_memory_test SOURCES lent_memory_test.cpp LIBRARIES CUDA::cudart_static LABELS cuda)
endif()
