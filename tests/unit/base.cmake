tutti_test(fd_post_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/fd_post_test.cpp LABELS concurrent)
tutti_test(handshake_test SOURCES handshake_test.cpp)
tutti_test(file_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/file_test.cpp)
tutti_test(launcher_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/launcher_test.cpp)
