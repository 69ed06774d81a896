tutti_test(tune_series_test SOURCES tune_series_test.cpp ${PROJECT_SOURCE_DIR}/tools/tune/series.cpp
           LIBRARIES tutti_check)
target_include_directories(tune_series_test PRIVATE ${PROJECT_SOURCE_DIR})

tutti_test(compare_test SOURCES compare_test.cpp LIBRARIES tutti_check)
target_include_directories(compare_test PRIVATE ${PROJECT_SOURCE_DIR})

tutti_test(tuned_tables_test SOURCES ${CMAKE_CURRENT_LIST_DIR}/tuned_tables_test.cpp
           ${PROJECT_SOURCE_DIR}/plugins/tuner-table/read.cpp ${PROJECT_SOURCE_DIR}/plugins/tuner-table/table.cpp)
target_include_directories(tuned_tables_test PRIVATE ${PROJECT_SOURCE_DIR}/plugins)
