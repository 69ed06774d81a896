tutti_test(tune_series_test SOURCES tune_series_test.cpp ${PROJECT_SOURCE_DIR}/tools/tune/series.cpp
           LIBRARIES tutti_check)
target_include_directories(tune_series_test PRIVATE ${PROJECT_SOURCE_DIR})
