tutti_test(stream_order_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/stream_order_test.cpp)
tutti_test(registrations_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/registrations_test.cpp)
tutti_test(strand_room_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/strand_room_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/bootstrap_group.cpp)
tutti_test(kernel_fault_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernel_fault_test.cpp)
tutti_test(kernel_waits_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/kernel_waits_test.cpp)
tutti_test(machine_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/machine_test.cpp)
tutti_test(history_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/history_test.cpp LABELS concurrent)
tutti_test(state_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/state_test.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_backend.cpp
           ${CMAKE_CURRENT_LIST_DIR}/bootstrap_group.cpp LABELS concurrent)
tutti_test(dry_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/dry_test.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_backend.cpp
           ${CMAKE_CURRENT_LIST_DIR}/bootstrap_group.cpp TIMEOUT 60)
add_dependencies(dry_test plugins tutti-net-mock) # it loads the default configuration, which names many
tutti_test(network_choice_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/network_choice_test.cpp)
tutti_test(crowd_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/crowd_test.cpp)
tutti_test(racks_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/racks_test.cpp)
tutti_test(limits_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/limits_test.cpp)
