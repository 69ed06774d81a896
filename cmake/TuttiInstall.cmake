# What `cmake --install` lays down: the library, the tool, the plugins, the SDK headers and its CMake package.
