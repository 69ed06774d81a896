tutti_test(device_test SOURCES device_test.cpp LIBRARIES tutti_host_kernels tutti_check LABELS concurrent TIMEOUT 200)
