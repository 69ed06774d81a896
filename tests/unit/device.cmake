tutti_test(device_test SOURCES unit/device_test.cpp LIBRARIES tutti_host_kernels LABELS concurrent)
