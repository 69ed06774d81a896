# Discovery: NVML is a fake, whose path the test gives.
add_library(fake_nvml MODULE fake_nvml.c)
target_link_libraries(fake_nvml PRIVATE tutti_options)
tutti_test(topology_discover_test SOURCES topology_discover_test.cpp)
add_dependencies(topology_discover_test fake_nvml)
target_compile_definitions(topology_discover_test PRIVATE TUTTI_FAKE_NVML="$<TARGET_FILE:fake_nvml>")
# Without the package libhwloc-plugins, hwloc reads XML by a small reader of its own.
add_test(NAME topology_discover_own_reader COMMAND topology_discover_test)
set_tests_properties(topology_discover_own_reader PROPERTIES ENVIRONMENT HWLOC_LIBXML=0)
tutti_time_limit(30 topology_discover_own_reader)

tutti_test(hardware_test SOURCES hardware_test.cpp topology_machines.cpp)
tutti_test(topology_affinity_test SOURCES topology_affinity_test.cpp)
tutti_test(topology_load_test SOURCES topology_load_test.cpp topology_machines.cpp)

# Search and connect.
tutti_test(topology_connect_test SOURCES topology_connect_test.cpp)
tutti_test(topology_search_test SOURCES topology_search_test.cpp topology_machines.cpp topology_random.cpp TIMEOUT 120
           OPTIMISED)

# The system graph. topology_machines and topology_random make documents for further tests.
tutti_test(topology_system_test
           SOURCES topology_system_test.cpp topology_system_property_test.cpp topology_machines.cpp topology_random.cpp)

# Tests that read XML.
if(TARGET pugixml::pugixml)
  tutti_test(topology_check_test SOURCES topology_check_test.cpp)
  tutti_test(topology_document_test SOURCES topology_document_test.cpp topology_machines.cpp topology_random.cpp
             TIMEOUT 60)
  tutti_test(topology_merge_test SOURCES topology_merge_test.cpp topology_machines.cpp topology_random.cpp)
endif()
