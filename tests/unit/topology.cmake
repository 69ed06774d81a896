# Discovery: NVML is a fake, whose path the test gives.
add_library(fake_nvml MODULE fake_nvml.c)
target_link_libraries(fake_nvml PRIVATE tutti_options)
tutti_test(topology_discover_test SOURCES topology_discover_test.cpp)
add_dependencies(topology_discover_test fake_nvml)
target_compile_definitions(topology_discover_test PRIVATE TUTTI_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
tutti_test(topology_affinity_test SOURCES topology_affinity_test.cpp)
tutti_test(topology_check_test SOURCES topology_check_test.cpp)
