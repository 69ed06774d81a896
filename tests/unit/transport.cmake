tutti_test(engine_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/engine_test.cpp LABELS concurrent)
tutti_test(gpu_links_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/gpu_links_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/bootstrap_group.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp
           ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp LABELS concurrent)
tutti_test(relay_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/relay_test.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp
           ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp LABELS concurrent)
tutti_test(line_relay_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/line_relay_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp LABELS concurrent)
tutti_test(shm_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/shm_test.cpp)
tutti_test(net_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/net_test.cpp ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp
           ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp
           LABELS concurrent TIMEOUT 60)
tutti_test(net_farewell_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/net_farewell_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp
           LABELS concurrent TIMEOUT 60)
tutti_test(failover_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/failover_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp
           LABELS concurrent TIMEOUT 60)
tutti_test(checked_network_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/checked_network_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp)
tutti_test(carried_relay_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/carried_relay_test.cpp
           ${CMAKE_CURRENT_LIST_DIR}/fake_network.cpp ${CMAKE_CURRENT_LIST_DIR}/private_memory.cpp LABELS concurrent)
