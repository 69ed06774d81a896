tutti_test(stream_order_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/stream_order_test.cpp)
