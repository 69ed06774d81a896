tutti_test(log_test SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/log_test.cpp LABELS concurrent)
