tutti_test(net_socket_test SOURCES net_socket_test.cpp LABELS concurrent)
add_dependencies(net_socket_test tutti-net-socket)
